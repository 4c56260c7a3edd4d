"""A chain that is copied out of the hot pool a few cells at a time, between the steps of turns that run, or while none
does.

Where values lie by channel, cells that were computed one by one among others' are copied one by one: a long reply at
once would be a gap in every stream (docs/performance.md has the numbers).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import numpy as np

from warmlane.engine.backends.base import Backend, ByteArray
from warmlane.engine.chains import Chain, ChainPool
from warmlane.engine.tiers.ram import RamTier
from warmlane.engine.vectors import Int32Array

LEAST_PIECE: Final = 16
"""Batches whose cells are copied in a step whatever it costs, so that there is an end."""

MOST_OF_MEMORY: Final = 1 / 8
"""The share of the RAM tier that a chain may take to leave bit by bit: for a while it is there twice."""


@dataclass(slots=True, eq=False)
class _Departure:
    """`parts` are snapshots of the cells from `start` to `reached`, of the sequence of `tokens`, in memory that the RAM
    tier has `lent`. `cell_ms` is what one cell by itself takes, and about what all that lie side by side take."""

    chain: Chain
    tokens: Int32Array
    start: int
    reached: int
    cell_ms: float = 0.0
    parts: list[ByteArray] = field(default_factory=list)
    lent: list[ByteArray] = field(default_factory=list)

    @property
    def rest(self) -> int:
        return int(self.tokens.size) - self.reached

    def piece(self, room_ms: float) -> int:
        """How many cells fit into the time, those of `LEAST_PIECE` batches at least."""
        runs = self.chain.runs.view
        first = int(np.searchsorted(runs, self.reached, side="right"))
        fitting = runs.size if self.cell_ms <= 0 else max(LEAST_PIECE, room_ms / self.cell_ms)
        last = int(min(first + fitting - 1, runs.size))
        return self.rest if last >= runs.size else int(runs[last]) - self.reached


class Leaver:
    """Takes one chain at a time out of the pool into the RAM tier. `now` is a clock in seconds. The model must be able
    to truncate, and see all of a sequence."""

    def __init__(self, backend: Backend, pool: ChainPool, ram: RamTier, *, now: Callable[[], float]) -> None:
        self._backend = backend
        self._pool = pool
        self._ram = ram
        self._now = now
        self._departure: _Departure | None = None
        self._joins = True
        self.spills = 0

    @property
    def leaving(self) -> Chain | None:
        """The chain that is on its way."""
        return self._departure.chain if self._departure is not None else None

    @property
    def busy(self) -> bool:
        """Whether a chain is on its way."""
        return self._departure is not None

    def takes(self, chain: Chain, start: int) -> bool:
        """Whether it is worth while to take this chain out bit by bit, and the backend's snapshots can be joined."""
        return self._joins and len(chain) - start > LEAST_PIECE

    def begin(self, chain: Chain, start: int) -> None:
        """Take this idle chain out, whose first `start` tokens are safe. None is on its way."""
        self._departure = _Departure(chain, chain.tokens.view.copy(), start, start)

    def go_on(self, room_ms: float, *, evict: bool = True) -> None:
        """Copy what fits into the time, and a few cells at least. Once all of the chain is in the RAM tier, or if it
        cannot be copied so, it is evicted, unless it is to stay, and nothing is `busy`; nor if it was taken up or
        dropped meanwhile."""
        leaving = self._departure
        if leaving is None:
            return
        if not self._is_as_it_was(leaving):
            self.stay()
            return
        copied = self._copy_some(leaving, room_ms)
        if copied and leaving.rest:
            return
        if copied:
            self._store(leaving)
        self.stay()
        if evict:
            self._pool.evict(leaving.chain)

    def stay(self) -> None:
        """Whatever is on its way stays."""
        leaving, self._departure = self._departure, None
        for buffer in leaving.lent if leaving else ():
            self._ram.take_back(buffer)

    def _copy_some(self, leaving: _Departure, room_ms: float) -> bool:
        began = self._now()
        if not leaving.parts:
            if not self._copy(leaving, 1):
                return False
            leaving.cell_ms = (self._now() - began) * 1e3
            if not self._can_go_on(leaving):
                return False
        while leaving.rest:
            if not self._copy(leaving, leaving.piece(room_ms - (self._now() - began) * 1e3)):
                return False
            if room_ms - (self._now() - began) * 1e3 < LEAST_PIECE * leaving.cell_ms:
                break
        return True

    def _can_go_on(self, leaving: _Departure) -> bool:
        """Whether the first part can be joined to others, and there is memory for all of them twice."""
        part = leaving.parts[0]
        self._joins = self._backend.joined([part], lambda n: np.empty(n, dtype=np.uint8)) is not None
        return self._joins and int(part.size) * (leaving.rest + 1) <= MOST_OF_MEMORY * self._ram.limit_bytes

    def _is_as_it_was(self, leaving: _Departure) -> bool:
        chain = leaving.chain
        idle = self._pool.holds(chain) and not chain.running
        return idle and np.array_equal(chain.tokens.view, leaving.tokens)

    def _copy(self, leaving: _Departure, n: int) -> bool:
        def allocate(n_bytes: int) -> ByteArray | None:
            buffer = self._ram.lend(n_bytes)
            if buffer is None:
                return None
            leaving.lent.append(buffer)
            return buffer[:n_bytes]

        end = leaving.reached + n
        part = self._backend.snapshot(leaving.chain.seq, leaving.reached, allocate, end=end)
        if part is None:
            return False
        leaving.parts.append(part)
        leaving.reached = end
        return True

    def _store(self, leaving: _Departure) -> None:
        chain, fill = leaving.chain, partial(self._backend.joined, leaving.parts)
        if self._ram.store(chain.domain, leaving.tokens, leaving.start, chain.owner, fill) is not None:
            self.spills += 1
