"""How an engine is to be set up: one struct that goes unchanged from the command line to the worker."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class EngineKind(StrEnum):
    LLAMACPP = "llamacpp"
    SIMULATED = "simulated"


class FlashAttention(StrEnum):
    """`auto` picks what measured faster for the way the engine is used."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one engine.

    `n_ctx` is the number of KV cells, shared by all sequences; None takes the backend's default. `capacity` is how many
    turns run at once; `flat` means one sequence, no sharing and capacity 1. `n_threads` None uses every core this
    process may run on. `chat_template` replaces the model's own.

    `hot_tokens` is how many cells warm conversations may keep while no turn runs on them; None is 8192 on a CPU, where
    attention costs by the highest used cell, and all of them elsewhere. `ram_cache_bytes` bounds the snapshots kept in
    memory; None is 2 GiB (64 MiB for the simulated engine), 0 keeps none. `disk_cache_dir` switches the disk tier on,
    `disk_cache_bytes` bounds it, and `disk_idle_s` is how long a conversation rests before it is written; a snapshot
    that has no room in memory is not written to disk either. `max_inter_token_ms` bounds the gap that a prefill may
    leave in running streams, and opens a second context of `n_ctx` cells for long ones. A flat engine has no tiers.

    The `simulated_*` fields concern that backend alone:
    milliseconds of engine time a prefilled token and a decode step take.
    """

    kind: EngineKind = EngineKind.LLAMACPP
    model_path: str | None = None
    model_name: str = "model"
    n_ctx: int | None = None
    capacity: int = 8
    flat: bool = False
    n_batch: int = 512
    n_threads: int | None = None
    flash_attention: FlashAttention = FlashAttention.AUTO
    chat_template: str | None = None
    hot_tokens: int | None = None
    ram_cache_bytes: int | None = None
    disk_cache_dir: str | None = None
    disk_cache_bytes: int = 8 << 30
    disk_idle_s: float = 30.0
    max_inter_token_ms: float | None = None
    simulated_hash: bool = False
    simulated_prefill_ms: float = 0.0
    simulated_decode_ms: float = 0.0

    @property
    def turns(self) -> int:
        """How many turns really run at once."""
        return 1 if self.flat else max(1, self.capacity)

    @property
    def sequences(self) -> int:
        """How many sequences the backend is asked for: the running turns' and room for warm ones."""
        return 1 if self.flat else min(255, max(64, 2 * self.turns))
