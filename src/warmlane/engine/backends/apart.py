"""Two contexts of one model as one backend: long sequences are computed apart from the others.

Attention costs by the highest used cell of a context, for each of its rows. A long prompt among streams makes every
stream's step as slow as its own. In a context of its own it makes only its own rows slow, so that steps without it are
as quick as ever; a step with it costs no less, as its cells are then read for it alone (docs/performance.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from warmlane.engine.backends.base import (
    Allocate,
    Backend,
    BackendInfo,
    ByteArray,
    CacheFull,
    Decoded,
    LogitsRow,
    SequenceFault,
    Slice,
    Tokenizer,
)

SEQUENCES_APART: Final = 4
"""How many sequences the other context has room for: where many are long, they no longer slow down short ones."""


@dataclass(slots=True)
class _Apart:
    """A sequence's number in the other context, which holds all `length` cells of it. Here there are the first `base`
    of them, which others may share."""

    seq: int
    base: int
    length: int


@dataclass(frozen=True, slots=True)
class _Decoded:
    """`where` says by slice which of the two decoded it, and as which of its slices."""

    parts: tuple[Decoded | None, Decoded | None]
    where: tuple[tuple[int, int], ...]
    deferred: frozenset[int]

    def logits(self, index: int) -> LogitsRow:
        part, at = self.where[index]
        decoded = self.parts[part]
        assert decoded is not None, "nothing was decoded there"
        return decoded.logits(at)


class TwoContexts:
    """Implements `Backend` over two of the same model, which see all of a sequence and can truncate; `apart` has
    sequences 0 to `SEQUENCES_APART` - 1. Closes both.

    Sequences begin `here`. One that is `set_apart` keeps its cells here and goes on in the other context, with a copy
    of them before it; it comes back when another sequence is to share what it has computed there, or where the copies
    leave too little room there. So no cell is here twice, and as many are in use here as callers count at most.
    """

    def __init__(self, here: Backend, apart: Backend) -> None:
        self._here = here
        self._other = apart
        self._apart: dict[int, _Apart] = {}
        self._free = list(range(SEQUENCES_APART))[::-1]

    @property
    def info(self) -> BackendInfo:
        return self._here.info

    @property
    def tokenizer(self) -> Tokenizer:
        return self._here.tokenizer

    @property
    def n_apart(self) -> int:
        """How many sequences go on in the other context."""
        return len(self._apart)

    def set_apart(self, seq: int, length: int) -> bool:
        if seq in self._apart:
            return True
        if not self._free:
            return False
        there = self._free[-1]
        if length:
            data = self._here.snapshot(seq, 0, _room)
            if data is None or not self._other.restore(there, data, 0, length):
                return False
        self._apart[seq] = _Apart(self._free.pop(), length, length)
        return True

    def decode(self, slices: Sequence[Slice]) -> _Decoded:
        where: list[tuple[int, int]] = []
        here: list[Slice] = []
        there: list[Slice] = []
        for piece in slices:
            apart = self._apart.get(piece.seq)
            group = here if apart is None else there
            where.append((int(apart is not None), len(group)))
            group.append(piece if apart is None else replace(piece, seq=apart.seq))
        names = {apart.seq: seq for seq, apart in self._apart.items()}
        try:
            other = self._other.decode(there) if there else None
        except CacheFull:
            seq = names[there[-1].seq]
            if not self._bring_back(seq, self._apart[seq]):
                raise CacheFull(seq) from None
            return self.decode(slices)
        except SequenceFault as fault:
            raise SequenceFault(names[fault.seq], str(fault), memory=fault.memory) from None
        try:
            ours = self._here.decode(here) if here else None
        except (CacheFull, SequenceFault):
            # Nothing is changed, says the contract.
            for piece in there:
                self._other.truncate(piece.seq, piece.position)
            raise
        deferred = {names[seq] for seq in other.deferred} if other is not None else set()
        for piece in there:
            if names[piece.seq] not in deferred:
                self._apart[names[piece.seq]].length = piece.position + int(piece.tokens.size)
        deferred |= ours.deferred if ours is not None else set()
        return _Decoded((ours, other), tuple(where), frozenset(deferred))

    def can_cut(self, seq: int, length: int) -> bool:
        return self._here.can_cut(seq, length)

    def shared_as_is(self, seq: int) -> int | None:
        apart = self._apart.get(seq)
        return None if apart is None else apart.base

    def share(self, src: int, dst: int, length: int) -> bool:
        apart = self._apart.get(src)
        if apart is not None and length > apart.base and not self._bring_back(src, apart):
            return False
        return self._here.share(src, dst, length)

    def truncate(self, seq: int, length: int) -> bool:
        apart = self._apart.get(seq)
        if apart is None:
            return self._here.truncate(seq, length)
        if length >= apart.base:
            apart.length = min(apart.length, length)
            return self._other.truncate(apart.seq, length)
        self._leave(seq, apart)
        return self._here.truncate(seq, length)

    def drop(self, seq: int) -> None:
        apart = self._apart.get(seq)
        if apart is not None:
            self._leave(seq, apart)
        self._here.drop(seq)

    def snapshot(self, seq: int, start: int, allocate: Allocate, *, end: int | None = None) -> ByteArray | None:
        apart = self._apart.get(seq)
        if apart is None:
            return self._here.snapshot(seq, start, allocate, end=end)
        return self._other.snapshot(apart.seq, start, allocate, end=end)

    def joined(self, parts: Sequence[ByteArray], allocate: Allocate) -> ByteArray | None:
        return self._here.joined(parts, allocate)

    def restore(self, seq: int, data: ByteArray, begin: int, end: int) -> bool:
        apart = self._apart.get(seq)
        if apart is None:
            return self._here.restore(seq, data, begin, end)
        if self._other.restore(apart.seq, data, begin, end):
            apart.length = end
            return True
        # There may be too few cells there; here there are as many as the caller knows of.
        return self._bring_back(seq, apart) and self._here.restore(seq, data, begin, end)

    def clear(self) -> None:
        for seq, apart in tuple(self._apart.items()):
            self._leave(seq, apart)
        self._here.clear()

    def close(self) -> None:
        self._other.close()
        self._here.close()

    def _bring_back(self, seq: int, apart: _Apart) -> bool:
        """Go on with all of the sequence here. False, and nothing is changed, if there are too few cells."""
        if apart.length > apart.base:
            data = self._other.snapshot(apart.seq, apart.base, _room)
            if data is None or not self._here.restore(seq, data, apart.base, apart.length):
                return False
        self._leave(seq, apart)
        return True

    def _leave(self, seq: int, apart: _Apart) -> None:
        self._other.drop(apart.seq)
        self._free.append(apart.seq)
        del self._apart[seq]


def _room(n_bytes: int) -> ByteArray:
    return np.empty(n_bytes, dtype=np.uint8)
