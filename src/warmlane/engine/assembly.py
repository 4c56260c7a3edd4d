"""From a config to a running scheduler: the one place that knows which backends there are."""

from __future__ import annotations

import hashlib
import os
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from warmlane.engine.backends.apart import SEQUENCES_APART, TwoContexts
from warmlane.engine.backends.base import Backend, BackendInfo
from warmlane.engine.backends.native_env import set_native_defaults
from warmlane.engine.backends.simulated import DEFAULT_CELLS, SimulatedBackend, SimulatedSettings, exit_process
from warmlane.engine.config import EngineConfig, EngineKind
from warmlane.engine.grammar import Grammars
from warmlane.engine.pace import Pace
from warmlane.engine.prefix_cache import CacheSettings
from warmlane.engine.protocol import EngineInfo
from warmlane.engine.scheduler import Scheduler
from warmlane.engine.tiers.disk import DiskTier
from warmlane.engine.tiers.writer import ThreadWriter

_HOT_TOKENS = 8192
_RAM_BYTES = 2 << 30
_RAM_BYTES_SIMULATED = 64 << 20

OpenBackend = Callable[[EngineConfig], Backend]


@dataclass(frozen=True, slots=True)
class Assembled:
    """A loaded model with its scheduler; both belong to the thread that made them. `grammars` may be used from any."""

    backend: Backend
    scheduler: Scheduler
    grammars: Grammars
    info: EngineInfo


def open_backend(config: EngineConfig, *, crash: Callable[[], None] = exit_process) -> Backend:
    """Load the model. `crash` is what the simulated engine's CRASH script does.

    Raises `errors.ConfigError` for a model that cannot be used.
    """
    if config.kind is EngineKind.SIMULATED:
        simulated = _open_simulated(config, config.sequences, crash)
        return with_room_apart(simulated, config, lambda: _open_simulated(config, SEQUENCES_APART, crash))
    set_native_defaults(os.environ)
    # Imported late: loading the native library costs a second that the simulated engine need not pay.
    from warmlane.engine.backends.llamacpp import LlamaCppBackend

    backend = LlamaCppBackend(config)
    return with_room_apart(backend, config, lambda: LlamaCppBackend(config, beside=backend, sequences=SEQUENCES_APART))


def _open_simulated(config: EngineConfig, sequences: int, crash: Callable[[], None]) -> SimulatedBackend:
    settings = SimulatedSettings(
        n_cells=config.n_ctx or DEFAULT_CELLS,
        n_seq_max=sequences,
        n_batch=config.n_batch,
        hash_mode=config.simulated_hash,
        prefill_s_per_token=config.simulated_prefill_ms / 1e3,
        decode_s=config.simulated_decode_ms / 1e3,
    )
    return SimulatedBackend(settings, model=config.model_name, crash=crash)


def with_room_apart(backend: Backend, config: EngineConfig, open_other: Callable[[], Backend]) -> Backend:
    """Where the operator bounds the gaps in streams, long prompts are computed in a context of their own, if the model
    can do so: it takes as much memory again."""
    facts = backend.info
    if config.max_inter_token_ms is None or config.flat or not facts.can_truncate or facts.attention_window:
        return backend
    try:
        return TwoContexts(backend, open_other())
    except BaseException:
        backend.close()
        raise


def assemble(
    config: EngineConfig, generation: int, *, serving_pid: int | None = None, open_backend: OpenBackend = open_backend
) -> Assembled:
    """Load the model and put a scheduler on it, on the calling thread. `serving_pid` is whom to name to others that
    want the disk cache as well; by default this process."""
    backend = open_backend(config)
    try:
        scheduler = _make_scheduler(backend, config, serving_pid)
    except BaseException:
        backend.close()
        raise
    facts = backend.info
    info = EngineInfo(
        model=config.model_name,
        fingerprint=facts.fingerprint,
        tokenizer=facts.tokenizer,
        n_ctx=min(facts.window, facts.n_cells),
        capacity=min(config.turns, facts.n_seq_max),
        block_paged=not config.flat,
        generation=generation,
        chat_template=config.chat_template if config.chat_template is not None else facts.chat_template,
        bos_token=facts.bos_token,
        eos_token=facts.eos_token,
        add_bos=facts.add_bos,
        special_tokens=facts.special_tokens,
        sampling=facts.sampling,
    )
    return Assembled(backend, scheduler, Grammars(backend.tokenizer), info)


def _make_scheduler(backend: Backend, config: EngineConfig, serving_pid: int | None) -> Scheduler:
    ram_bytes = config.ram_cache_bytes
    if ram_bytes is None:
        ram_bytes = _RAM_BYTES_SIMULATED if config.kind is EngineKind.SIMULATED else _RAM_BYTES
    disk = None
    if config.disk_cache_dir is not None and not config.flat:
        disk = DiskTier(
            Path(config.disk_cache_dir),
            serving_pid=serving_pid,
            limit_bytes=config.disk_cache_bytes,
            key=_disk_key(backend.info),
            whole=not backend.info.can_truncate,
            window=backend.info.attention_window,
            writer=ThreadWriter(),
            now=time.monotonic,
        )
    hot_tokens = config.hot_tokens
    if hot_tokens is None and backend.info.idle_cells_cost:
        hot_tokens = _HOT_TOKENS
    return Scheduler(
        backend,
        capacity=config.turns,
        flat=config.flat,
        now=time.monotonic,
        entropy=lambda: secrets.randbits(64),
        pace=Pace(n_batch=backend.info.n_batch, max_gap_ms=config.max_inter_token_ms),
        cache=CacheSettings(hot_tokens=hot_tokens, ram_bytes=ram_bytes, idle_s=config.disk_idle_s),
        disk=disk,
    )


def _disk_key(info: BackendInfo) -> bytes:
    """What a snapshot on disk is good for: these weights, this tokenizer, this layout of cells."""
    return hashlib.sha256("\0".join((info.fingerprint, info.tokenizer, info.kv_format)).encode()).digest()
