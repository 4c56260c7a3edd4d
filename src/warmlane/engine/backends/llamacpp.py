"""The real engine: llama.cpp by its C API, one context with a KV cache that all sequences share."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path

import llama_cpp
import numpy as np
from llama_cpp import llama_cpp as lib

from warmlane.engine.backends.base import (
    Allocate,
    BackendInfo,
    ByteArray,
    CacheFull,
    DecodeFailed,
    LogitsRow,
    Slice,
)
from warmlane.engine.backends.llamacpp_batch import NativeBatch
from warmlane.engine.backends.llamacpp_log import first_error
from warmlane.engine.backends.llamacpp_model import GgufModel, file_fingerprint, load_model
from warmlane.engine.backends.llamacpp_state import cut, join
from warmlane.engine.backends.llamacpp_vocab import GgufTokenizer
from warmlane.engine.config import EngineConfig, FlashAttention
from warmlane.errors import ConfigError

DEFAULT_CELLS_PAGED = 16384
DEFAULT_CELLS_FLAT = 8192

_NO_SLOT = 1
_NO_MEMORY = -2
_FLASH = {
    FlashAttention.ON: lib.LLAMA_FLASH_ATTN_TYPE_ENABLED,
    FlashAttention.OFF: lib.LLAMA_FLASH_ATTN_TYPE_DISABLED,
}


class _Decoded:
    """Rows are read from the context's output buffer, which the next decode overwrites."""

    deferred: frozenset[int] = frozenset()

    def __init__(self, context: lib.llama_context_p, n_vocab: int, rows: list[int]) -> None:
        self._context = context
        self._n_vocab = n_vocab
        self._rows = rows

    def logits(self, index: int) -> LogitsRow:
        pointer = lib.llama_get_logits_ith(self._context, self._rows[index])
        return np.ctypeslib.as_array(pointer, shape=(self._n_vocab,))


class LlamaCppBackend:
    """Implements `Backend`. Loads the model in its constructor and decodes one token to warm up, so construct it on the
    thread that will decode.

    With `beside` this is another context of that one's model, which must be closed after it; `sequences` is how many it
    has, by default those of the config.

    Raises `ConfigError` if the file or the settings cannot be used.
    """

    def __init__(
        self, config: EngineConfig, *, beside: LlamaCppBackend | None = None, sequences: int | None = None
    ) -> None:
        self._gguf: GgufModel | None = load_model(config.model_path) if beside is None else beside._gguf
        assert self._gguf is not None, "used after close"
        self._owns_model = beside is None
        self._context: lib.llama_context_p | None = None
        try:
            self._context = _open_context(self._gguf, config, sequences or config.sequences)
        except BaseException:
            self.close()
            raise
        memory = lib.llama_get_memory(self._context)
        if memory is None:
            self.close()
            raise ConfigError(f"The model file {config.model_path} keeps no KV cache. Pick a chat model in GGUF.")
        self._memory = memory
        self._tokenizer = GgufTokenizer(self._gguf.vocab) if beside is None else beside.tokenizer
        # Where restored pieces leave a hole in what windowed layers hold, what lies before it is no use: the first
        # position behind it, by sequence.
        self._floor: dict[int, int] = {}
        self._batch = NativeBatch(config.n_batch)
        self.info = _describe(self._gguf, self._tokenizer, self._context, config)
        self._scratch = self.info.n_seq_max
        self._warm_up()

    @property
    def tokenizer(self) -> GgufTokenizer:
        return self._tokenizer

    def decode(self, slices: Sequence[Slice]) -> _Decoded:
        rows = self._batch.fill(slices)
        status = lib.llama_decode(self._live, self._batch.native)
        if status == _NO_SLOT:
            raise CacheFull
        if status != 0:
            raise DecodeFailed(f"llama_decode returned {status}", memory=status == _NO_MEMORY)
        return _Decoded(self._live, self.info.n_vocab, rows)

    def can_cut(self, seq: int, length: int) -> bool:
        if not self.info.can_truncate:
            return length in (0, int(lib.llama_memory_seq_pos_max(self._memory, seq)) + 1)
        if not self.info.attention_window:
            return True
        # Cutting back into what was forgotten would report success and empty the sequence.
        return length == 0 or self._oldest(seq) <= self._first_seen(length)

    def share(self, src: int, dst: int, length: int) -> bool:
        if not self.can_cut(src, length):
            return False
        lib.llama_memory_seq_cp(self._memory, src, dst, 0, length)
        if src in self._floor:
            self._floor[dst] = self._floor[src]
        return True

    def set_apart(self, seq: int, length: int) -> bool:
        return False

    def shared_as_is(self, seq: int) -> int | None:
        return None

    def truncate(self, seq: int, length: int) -> bool:
        if not self.can_cut(seq, length):
            return False
        return bool(lib.llama_memory_seq_rm(self._memory, seq, length, -1))

    def drop(self, seq: int) -> None:
        lib.llama_memory_seq_rm(self._memory, seq, -1, -1)
        self._floor.pop(seq, None)

    def snapshot(self, seq: int, start: int, allocate: Allocate, *, end: int | None = None) -> ByteArray | None:
        source = seq
        if start > 0 or end is not None:
            source = self._scratch
            lib.llama_memory_seq_cp(self._memory, seq, source, start, -1 if end is None else end)
        try:
            size = int(lib.llama_state_seq_get_size(self._live, source))
            data = allocate(size)
            if data is None or lib.llama_state_seq_get_data(self._live, _pointer(data), size, source) != size:
                return None
            return data
        finally:
            self.drop(self._scratch)

    def joined(self, parts: Sequence[ByteArray], allocate: Allocate) -> ByteArray | None:
        return join(parts, allocate) if self._can_cut_snapshots else None

    def restore(self, seq: int, data: ByteArray, begin: int, end: int) -> bool:
        # Into a sequence of its own first: a restore that fails empties its target.
        target = self._scratch if self.info.can_truncate else seq
        if self._can_cut_snapshots:
            # Cells go where cells are free, one by one if need be: those not asked for could cost more than they save.
            some = cut(data, begin, end)
            data = data if some is None else some
        restored = int(lib.llama_state_seq_set_data(self._live, _pointer(data), data.size, target)) == data.size
        fits = restored and self._continues(target, begin, end)
        if fits and target != seq:
            oldest = self._oldest(target)
            lib.llama_memory_seq_cp(self._memory, target, seq, begin, end)
            if oldest > begin:
                self._floor[seq] = oldest
        if not fits or target != seq:
            self.drop(target)
        return fits

    def clear(self) -> None:
        lib.llama_memory_clear(self._memory, False)
        self._floor.clear()

    def close(self) -> None:
        if self._context is not None:
            lib.llama_free(self._context)
            self._context = None
        if self._gguf is not None:
            if self._owns_model:
                self._gguf.free()
            self._gguf = None

    @property
    def _live(self) -> lib.llama_context_p:
        assert self._context is not None, "used after close"
        return self._context

    @property
    def _can_cut_snapshots(self) -> bool:
        return self.info.can_truncate and not self.info.attention_window

    def _oldest(self, seq: int) -> int:
        """The first position from which on a sequence holds everything, in windowed layers too."""
        return max(int(lib.llama_memory_seq_pos_min(self._memory, seq)), self._floor.get(seq, 0))

    def _first_seen(self, position: int) -> int:
        """The first position that windowed layers see from here."""
        window = self.info.attention_window
        return max(0, position - window + 1) if window else 0

    def _continues(self, seq: int, begin: int, end: int) -> bool:
        """Whether a restored sequence leads from `begin` to `end`; without truncation, whether it ends there. A sliding
        window's snapshot lacks old positions in some layers, and nothing tells which it has in the others."""
        last = int(lib.llama_memory_seq_pos_max(self._memory, seq))
        if not self.info.can_truncate:
            return begin == 0 and last == end - 1
        oldest = self._oldest(seq)
        return last >= end - 1 and (0 <= oldest <= begin or begin < oldest <= self._first_seen(end))

    def _warm_up(self) -> None:
        """The first decode builds graphs and starts threads; nobody's first turn should pay for it."""
        token = np.array([self._tokenizer.warmup_token], dtype=np.int32)
        try:
            self.decode([Slice(0, 0, token, wants_logits=True)])
        except (CacheFull, DecodeFailed) as error:
            self.close()
            raise ConfigError(f"The model loads but does not compute: {error}. Try a smaller --ctx.") from None
        self.clear()


def _open_context(gguf: GgufModel, config: EngineConfig, sequences: int) -> lib.llama_context_p:
    threads = config.n_threads or available_cores()
    params = lib.llama_context_default_params()
    params.n_ctx = config.n_ctx or (DEFAULT_CELLS_FLAT if config.flat else DEFAULT_CELLS_PAGED)
    params.n_batch = config.n_batch
    params.n_ubatch = config.n_batch
    # One more than the scheduler knows of, to take snapshots from and restore them into.
    params.n_seq_max = sequences + 1
    params.n_threads = threads
    params.n_threads_batch = threads
    params.flash_attn_type = _flash_attention(config)
    params.kv_unified = True
    # A full-size cache for sliding layers, so that their sequences can be shared and cut like any other.
    params.swa_full = True
    params.no_perf = True
    context: lib.llama_context_p | None = lib.llama_init_from_model(gguf.model, params)
    if not context:
        raise ConfigError(
            f"The model cannot be set up with {params.n_ctx} KV cells: {first_error() or 'llama.cpp gave no reason'}. "
            "Try a smaller --ctx."
        )
    return context


def _flash_attention(config: EngineConfig) -> int:
    """Where it is left to us: on a CPU, flash attention is slower for up to some 64 rows and whatever they share
    (docs/performance.md); it wins only beside many cells of no use, and those leave while turns run."""
    if config.flash_attention is not FlashAttention.AUTO:
        return int(_FLASH[config.flash_attention])
    if lib.llama_supports_gpu_offload():
        return int(lib.LLAMA_FLASH_ATTN_TYPE_AUTO)
    return int(_FLASH[FlashAttention.OFF])


def _describe(
    gguf: GgufModel, tokenizer: GgufTokenizer, context: lib.llama_context_p, config: EngineConfig
) -> BackendInfo:
    n_cells = int(lib.llama_n_ctx(context))
    assert config.model_path is not None
    return BackendInfo(
        model=gguf.name or config.model_name,
        fingerprint=file_fingerprint(Path(config.model_path)),
        tokenizer=tokenizer.fingerprint,
        kv_format=f"llama-cpp-python {llama_cpp.__version__}, f16, unified, flash attention {_flash_attention(config)}",
        n_cells=n_cells,
        n_seq_max=int(lib.llama_n_seq_max(context)) - 1,
        n_batch=config.n_batch,
        n_vocab=tokenizer.n_vocab,
        window=min(n_cells, gguf.n_ctx_train),
        can_truncate=not gguf.recurrent,
        attention_window=0 if gguf.recurrent else gguf.n_swa,
        idle_cells_cost=not lib.llama_supports_gpu_offload(),
        chat_template=gguf.chat_template,
        bos_token=tokenizer.bos_text,
        eos_token=tokenizer.eos_text,
        add_bos=tokenizer.add_bos,
        special_tokens=tokenizer.special_tokens,
        sampling=gguf.sampling,
    )


def _pointer(data: ByteArray) -> ctypes.Array[ctypes.c_uint8]:
    return ctypes.cast(data.ctypes.data, ctypes.POINTER(ctypes.c_uint8))  # type: ignore[return-value]


def available_cores() -> int:
    """Cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1
