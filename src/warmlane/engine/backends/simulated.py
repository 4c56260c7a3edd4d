"""An engine without a model: cells are kept one by one, and the next token is a function of the cells a sequence sees.

So a cell that belongs to the wrong sequence, is missing, or sits at the wrong position changes the output, and a test
sees it. The reply itself is scripted by the last message (`scripts`).
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NoReturn

import msgspec
import numpy as np
from msgspec.structs import astuple

from warmlane.engine.backends.base import (
    Allocate,
    BackendInfo,
    ByteArray,
    CacheFull,
    DecodeFailed,
    LogitsRow,
    SequenceFault,
    Slice,
)
from warmlane.engine.backends.bytes_vocab import (
    CHAT_TEMPLATE,
    IM_END,
    IM_START,
    N_VOCAB,
    SPECIAL_TOKENS,
    ByteTokenizer,
)
from warmlane.engine.backends.scripts import Script, default_reply, parse_script
from warmlane.engine.backends.simulated_rows import behind_thought, certain, closing, hashed
from warmlane.engine.protocol import SamplingParams
from warmlane.engine.vectors import Int32Array

DEFAULT_CELLS = 32768
POLL_S = 0.01
"""Longest wait inside one decode while every sequence sleeps, so that a cancellation is seen soon."""

DAMAGED = 1 << 16
"""Added to what a cell holds if it was computed without all that it needs."""

CRASH_STATUS = 70


def exit_process() -> NoReturn:
    """Die as a native crash would: at once, with nothing flushed or closed."""
    os._exit(CRASH_STATUS)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedSettings:
    """Sizes, the latency model (seconds a prefilled token, a decode step and a token of a snapshot take), and the hash
    mode, in which tokens are a hash of the cells seen wherever no script applies. With an `attention_window` every
    sequence forgets what lies further back as soon as it may, and whatever is computed without what it needs comes out
    wrong."""

    n_cells: int = DEFAULT_CELLS
    n_seq_max: int = 64
    n_batch: int = 512
    can_truncate: bool = True
    attention_window: int = 0
    hash_mode: bool = False
    prefill_s_per_token: float = 0.0
    decode_s: float = 0.0
    snapshot_s_per_token: float = 0.0


class _Snapshot(msgspec.Struct, frozen=True):
    tokens: list[int]
    positions: list[int]
    near: list[bool]


@dataclass(frozen=True, slots=True)
class _Decoded:
    rows: dict[int, LogitsRow]
    deferred: frozenset[int]

    def logits(self, index: int) -> LogitsRow:
        return self.rows[index]


class SimulatedBackend:
    """Implements `Backend`. Time, sleeping and crashing are injected."""

    def __init__(
        self,
        settings: SimulatedSettings = SimulatedSettings(),
        *,
        model: str = "simulated",
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        crash: Callable[[], None] = exit_process,
    ) -> None:
        self._settings = settings
        self._tokenizer = ByteTokenizer()
        self._now = now
        self._sleep = sleep
        self._crash = crash
        n = settings.n_cells
        self._token = np.zeros(n, dtype=np.int32)
        self._position = np.full(n, -1, dtype=np.int32)
        self._member = np.zeros((settings.n_seq_max, n), dtype=np.bool_)
        # Of these, what the layers with a window hold.
        self._near = np.zeros_like(self._member)
        self._due: dict[int, tuple[int, float]] = {}
        self.info = BackendInfo(
            model=model,
            fingerprint=hashlib.sha256(b"simulated-1").hexdigest(),
            tokenizer=hashlib.sha256("\0".join(SPECIAL_TOKENS).encode()).hexdigest(),
            kv_format="cells-1",
            n_cells=n,
            n_seq_max=settings.n_seq_max,
            n_batch=settings.n_batch,
            n_vocab=N_VOCAB,
            window=n,
            can_truncate=settings.can_truncate,
            attention_window=settings.attention_window,
            idle_cells_cost=False,
            chat_template=CHAT_TEMPLATE,
            bos_token="",
            eos_token="<|im_end|>",
            add_bos=False,
            special_tokens=SPECIAL_TOKENS,
            sampling=SamplingParams(),
        )

    @property
    def tokenizer(self) -> ByteTokenizer:
        return self._tokenizer

    @property
    def n_used(self) -> int:
        """Cells that belong to any sequence."""
        return int(np.count_nonzero(self._member.any(axis=0)))

    def decode(self, slices: Sequence[Slice]) -> _Decoded:
        n_tokens = sum(s.tokens.size for s in slices)
        free = np.flatnonzero(~self._member.any(axis=0))
        if n_tokens > free.size:
            raise CacheFull
        if n_tokens > self.info.n_batch:
            raise DecodeFailed(f"{n_tokens} tokens in a batch of {self.info.n_batch}")
        replies = self._replies(slices)
        deferred = self._deferred(slices, replies)
        taken = 0
        rows: dict[int, LogitsRow] = {}
        for index, piece in enumerate(slices):
            if piece.seq in deferred:
                continue
            cells = free[taken : taken + piece.tokens.size]
            taken += piece.tokens.size
            whole = self.can_cut(piece.seq, piece.position)
            self._token[cells] = piece.tokens if whole else piece.tokens + DAMAGED
            self._position[cells] = np.arange(piece.position, piece.position + piece.tokens.size)
            self._member[piece.seq, cells] = True
            self._near[piece.seq, cells] = True
            self._near[piece.seq] &= self._position >= self._first_seen(piece.position + piece.tokens.size)
            if piece.wants_logits:
                rows[index] = self._logits(piece.seq)
        self._spend(slices, deferred)
        return _Decoded(rows, deferred)

    def can_cut(self, seq: int, length: int) -> bool:
        if not self.info.can_truncate:
            return length in (0, np.count_nonzero(self._member[seq]))
        if not self.info.attention_window:
            return True
        first = self._first_seen(length)
        near = self._near[seq] & (self._position >= first) & (self._position < length)
        return bool(np.count_nonzero(near) == length - first)

    def share(self, src: int, dst: int, length: int) -> bool:
        if not self.can_cut(src, length):
            return False
        for held in (self._member, self._near):
            held[dst] = held[src] & (self._position < length)
        return True

    def set_apart(self, seq: int, length: int) -> bool:
        return False

    def shared_as_is(self, seq: int) -> int | None:
        return None

    def truncate(self, seq: int, length: int) -> bool:
        if not self.can_cut(seq, length):
            return False
        for held in (self._member, self._near):
            held[seq] &= self._position < length
        self._due.pop(seq, None)
        return True

    def drop(self, seq: int) -> None:
        self._member[seq] = self._near[seq] = False
        self._due.pop(seq, None)

    def snapshot(self, seq: int, start: int, allocate: Allocate, *, end: int | None = None) -> ByteArray | None:
        held = self._member[seq] & (self._position >= start)
        if end is not None:
            held &= self._position < end
        cells = np.flatnonzero(held)
        if self._settings.snapshot_s_per_token > 0:
            self._sleep(cells.size * self._settings.snapshot_s_per_token)
        near = self._near[seq, cells].tolist()
        return _written(_Snapshot(self._token[cells].tolist(), self._position[cells].tolist(), near), allocate)

    def joined(self, parts: Sequence[ByteArray], allocate: Allocate) -> ByteArray | None:
        if self.info.attention_window or not self.info.can_truncate:
            return None
        pieces = [msgspec.msgpack.decode(part.tobytes(), type=_Snapshot) for part in parts]
        tokens, positions, near = ([*chain(*values)] for values in zip(*map(astuple, pieces), strict=True))
        return _written(_Snapshot(tokens, positions, near), allocate)

    def restore(self, seq: int, data: ByteArray, begin: int, end: int) -> bool:
        try:
            saved = msgspec.msgpack.decode(data.tobytes(), type=_Snapshot)
        except msgspec.DecodeError:
            return False
        free = np.flatnonzero(~self._member.any(axis=0))[: len(saved.tokens)]
        if not free.size >= len(saved.tokens) == len(saved.positions) == len(saved.near):
            return False
        if not set(range(begin, end)) <= set(saved.positions):
            return False
        if not self.info.can_truncate and (begin > 0 or end != len(saved.positions)):
            return False
        near = {position for position, is_near in zip(saved.positions, saved.near, strict=True) if is_near}
        if not set(range(max(begin, self._first_seen(end)), end)) <= near:
            return False
        self._token[free] = saved.tokens
        self._position[free] = saved.positions
        wanted = (self._position[free] >= begin) & (self._position[free] < end)
        self._member[seq, free[wanted]] = True
        self._near[seq, free[wanted]] = np.array(saved.near, dtype=np.bool_)[wanted]
        return True

    def clear(self) -> None:
        self._member[:] = self._near[:] = False
        self._due.clear()

    def close(self) -> None:
        self.clear()

    def _first_seen(self, position: int) -> int:
        """The first position that layers with a window see from here."""
        window = self.info.attention_window
        return max(0, position - window + 1) if window else 0

    def _visible(self, seq: int) -> tuple[Int32Array, Int32Array]:
        """Tokens and positions of the cells a sequence sees, by position."""
        cells = np.flatnonzero(self._member[seq])
        positions = self._position[cells]
        order = np.argsort(positions, kind="stable")
        return self._token[cells[order]], positions[order]

    def _replies(self, slices: Sequence[Slice]) -> dict[int, _Reply]:
        """What each sequence that wants logits is in the middle of; plays faults before anything is changed."""
        replies: dict[int, _Reply] = {}
        for piece in slices:
            if piece.wants_logits:
                tokens, _ = self._visible(piece.seq)
                reply = _read(np.concatenate([tokens, piece.tokens]))
                if reply is None:
                    continue
                replies[piece.seq] = reply
                if reply.progress == reply.script.crash_after:
                    self._crash()
                if reply.progress == reply.script.fail_after:
                    raise SequenceFault(piece.seq, f"The script asked for a fault after {reply.progress} tokens.")
                if reply.progress == reply.script.no_memory_after:
                    raise SequenceFault(piece.seq, "The script asked for a lack of memory.", memory=True)
        return replies

    def _deferred(self, slices: Sequence[Slice], replies: dict[int, _Reply]) -> frozenset[int]:
        """Sequences whose script says they are still busy; waits a little if all of them are."""
        now = self._now()
        busy: dict[int, float] = {}
        for piece in slices:
            reply = replies.get(piece.seq)
            pause = 0.0 if reply is None else reply.pause_s
            if pause <= 0:
                continue
            position, due = self._due.get(piece.seq, (-1, 0.0))
            if position != piece.position:
                due = now + pause
                self._due[piece.seq] = (piece.position, due)
            if due > now:
                busy[piece.seq] = due - now
        if busy and len(busy) == len(slices):
            self._sleep(min(POLL_S, *busy.values()))
        return frozenset(busy)

    def _spend(self, slices: Sequence[Slice], deferred: frozenset[int]) -> None:
        """Engine time by the latency model."""
        done = [s for s in slices if s.seq not in deferred]
        prefilled = sum(s.tokens.size for s in done if s.tokens.size > 1)
        seconds = prefilled * self._settings.prefill_s_per_token
        if any(s.tokens.size == 1 for s in done):
            seconds += self._settings.decode_s
        if seconds > 0:
            self._sleep(seconds)

    def _logits(self, seq: int) -> LogitsRow:
        tokens, positions = self._visible(seq)
        whole = positions.size == 0 or np.array_equal(positions, np.arange(positions.size))
        reply = _read(tokens) if whole else None
        if reply is not None:
            wanted = reply.output(hash_mode=self._settings.hash_mode)
            if wanted is not None and reply.said != wanted[: reply.progress]:
                wanted = behind_thought(wanted, reply.said)
            if wanted is not None and reply.said == wanted[: reply.progress]:
                return certain(wanted[reply.progress] if reply.progress < len(wanted) else IM_END)
            if wanted is not None:
                return closing(reply.said)
        return hashed(tokens, positions, reply.progress if reply is not None else 0)


@dataclass(frozen=True, slots=True)
class _Reply:
    """A reply in the making: what it answers, and its bytes so far."""

    role: str
    message: str
    script: Script
    said: bytes
    progress: int

    @property
    def pause_s(self) -> float:
        """How long the next token takes."""
        return self.script.slow_s + (self.script.sleep_s if self.progress == 0 else 0.0)

    def output(self, *, hash_mode: bool) -> bytes | None:
        """The whole reply; None where the hash is to speak."""
        text = self.script.output
        if text is None:
            if hash_mode:
                return None
            text = default_reply(self.role, self.message)
        return text.encode("utf-8", "replace")


def _read(tokens: Int32Array) -> _Reply | None:
    """The last user or tool message of a ChatML prompt and the reply begun behind it; None for any other prompt."""
    starts = np.flatnonzero(tokens == IM_START)
    if starts.size == 0:
        return None
    head, newline, body = _bytes(tokens[starts[-1] + 1 :]).partition(b"\n")
    if head != b"assistant" or not newline:
        return None
    for at, end in zip(starts[-2::-1], starts[:0:-1], strict=True):
        role, _, content = _bytes(tokens[at + 1 : end]).partition(b"\n")
        if role in (b"user", b"tool"):
            message = content.removesuffix(b"\n").decode("utf-8", "replace")
            return _Reply(role.decode(), message, parse_script(message), body, len(body))
    return None


def _written(snapshot: _Snapshot, allocate: Allocate) -> ByteArray | None:
    saved = msgspec.msgpack.encode(snapshot)
    data = allocate(len(saved))
    if data is not None:
        data[:] = np.frombuffer(saved, dtype=np.uint8)
    return data


def _bytes(tokens: Int32Array) -> bytes:
    return tokens[tokens < 256].astype(np.uint8).tobytes()
