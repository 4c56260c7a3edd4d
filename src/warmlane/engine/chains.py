"""The prefix cache in its first form: every computed sequence is a chain of tokens that others may share.

States of a chain: *running* (a turn computes on it), *owned* (a session's, between turns), *idle* (nobody's: kept for
whoever shares its prefix). Only running chains are safe from eviction, which loses work, never correctness.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from warmlane.engine.backends.base import Backend
from warmlane.engine.cells import CellTable
from warmlane.engine.protocol import OwnerId
from warmlane.engine.vectors import Int32Array, IntVector, common_prefix


class NoSequence(Exception):
    """Every sequence is running."""


@dataclass(slots=True, eq=False)
class Chain:
    """The cells of one backend sequence: `tokens[i]` was computed at position i into `cells[i]`. `used_s` is on the
    pool's clock; `kept` tokens of it are known to be in a lower tier, and `kept_at` had it when its last snapshot on
    the way was taken; another is to be taken at each length in `stops`. `ahead` had it when it was last copied without
    having to leave. `runs` are the lengths at which batches went on with it: cells of one batch are likely to lie side
    by side, those of two are not."""

    seq: int
    domain: bytes
    owner: OwnerId | None
    tokens: IntVector
    cells: IntVector
    running: bool = False
    used_at: int = 0
    used_s: float = 0.0
    kept: int = 0
    kept_at: int = 0
    ahead: int = 0
    stops: set[int] = field(default_factory=set)
    runs: IntVector = field(default_factory=IntVector)

    def __len__(self) -> int:
        return len(self.tokens)


class ChainPool:
    """All chains of one backend, and the only caller of its memory operations.

    With `sharing` off (flat engines) there is one chain, and only its own owner reuses it. `leaving` is called with a
    chain before it is evicted; chains that `wanted` speaks for are evicted last. `now` is a clock in seconds. No chain
    that was set apart is brought back for fewer than `least_shared` tokens.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        sharing: bool = True,
        leaving: Callable[[Chain], None] = lambda chain: None,
        wanted: Callable[[Chain], bool] = lambda chain: False,
        now: Callable[[], float] = lambda: 0.0,
        least_shared: int = 64,
    ) -> None:
        info = backend.info
        self._least_shared = least_shared
        self._backend = backend
        self._sharing = sharing
        self._leaving = leaving
        self._wanted = wanted
        self._now = now
        self.can_truncate = info.can_truncate
        self.table = CellTable(info.n_cells)
        self._chains: dict[int, Chain] = {}
        self._owners: dict[OwnerId, Chain] = {}
        self._free_seqs = list(range(info.n_seq_max if sharing else 1))[::-1]
        self._tick = 0
        self.evictions = 0

    def __iter__(self) -> Iterator[Chain]:
        return iter(tuple(self._chains.values()))

    def __len__(self) -> int:
        return len(self._chains)

    @property
    def free_sequences(self) -> int:
        """Sequences that no chain has."""
        return len(self._free_seqs)

    def of(self, owner: OwnerId) -> Chain | None:
        """The chain this owner holds, if any."""
        return self._owners.get(owner)

    def reusable(self, domain: bytes, tokens: Int32Array) -> int:
        """How many tokens of `tokens` a placement would find."""
        return self._longest(self._chains.values(), domain, tokens[:-1])[1] if self._sharing else 0

    def held_by_running(self, owner: OwnerId, domain: bytes, tokens: Int32Array) -> int:
        """How many of the cells that a placement would start with running chains hold already. The same tokens may be
        in cells twice, where two chains computed or restored them apart."""
        best, length = self._longest(self._candidates(owner, domain), domain, tokens[:-1], owner)
        if best is None:
            return 0
        running = np.zeros(self.table.n_cells, dtype=np.bool_)
        for chain in self._chains.values():
            if chain.running:
                running[chain.cells.view] = True
        return int(np.count_nonzero(running[best.cells.view[:length]]))

    def holds(self, chain: Chain) -> bool:
        """Whether the chain has not been dropped since."""
        return self._chains.get(chain.seq) is chain

    def place(self, owner: OwnerId, domain: bytes, tokens: Int32Array, *, share: bool = True) -> Chain:
        """A running chain of `owner` that holds the longest verified prefix of `tokens` any chain of the domain has,
        one token less than all of them at most (the last must be computed to get logits).

        Where that chain holds the last sequence that is to be had, it gives way instead. Without `share` the chain is
        empty. Raises `NoSequence` if every sequence is running.
        """
        wanted = tokens[:-1]
        own = self._owners.get(owner)
        if own is not None and own.domain != domain:
            self.drop(own)
            own = None
        best, length = self._longest(self._candidates(owner, domain) if share else (), domain, wanted, owner)
        if own is not None and best is own:
            if self.truncate(own, length):
                return self._start(own)
            own, best, length = None, None, 0
        if own is not None:
            self._retire(own)
        chain = self._new(owner, domain, keep=best)
        if best is not None and self.holds(best) and self._backend.share(best.seq, chain.seq, length):
            shared = best.cells.view[:length]
            self.table.hold(shared)
            chain.cells.extend(shared)
            chain.tokens.extend(wanted[:length])
            chain.runs.extend(best.runs.view[: int(np.searchsorted(best.runs.view, length))])
            self._touch(best)
        return self._start(chain)

    def grow(self, chain: Chain, tokens: Int32Array) -> None:
        """The backend has computed these tokens at the end of the chain."""
        chain.runs.append(len(chain))
        chain.cells.extend(self.table.take(int(tokens.size)))
        chain.tokens.extend(tokens)

    def truncate(self, chain: Chain, length: int) -> bool:
        """Cut to `length` tokens. False if the backend cannot; the chain is then dropped."""
        if length >= len(chain):
            return True
        if length > 0 and not self._backend.truncate(chain.seq, length):
            self.drop(chain)
            return False
        if length <= 0:
            self._backend.drop(chain.seq)
        self.table.give_back(chain.cells.view[length:].copy())
        chain.cells.truncate(length)
        chain.tokens.truncate(length)
        chain.runs.truncate(int(np.searchsorted(chain.runs.view, length)))
        chain.kept = min(chain.kept, length)
        chain.kept_at = min(chain.kept_at, length)
        return True

    def stop(self, chain: Chain) -> None:
        """The turn on this chain is over; the cells stay its owner's."""
        chain.running = False
        self._touch(chain)

    def release(self, owner: OwnerId, *, purge: bool) -> None:
        """The owner gives its chain up: dropped with `purge`, else kept idle as long as there is room."""
        chain = self._owners.get(owner)
        if chain is None:
            return
        if purge or not self._sharing:
            self.drop(chain)
        else:
            self._retire(chain)

    def drop(self, chain: Chain) -> None:
        """Give the chain's cells and its sequence back."""
        self._backend.drop(chain.seq)
        self._forget(chain)

    def clear(self) -> None:
        """Drop every chain."""
        for chain in self:
            self.drop(chain)

    def reserve(self, n: int) -> bool:
        """Evict chains no turn runs on, least recently used first, until `n` cells are free. False if there are not
        that many even then."""
        while self.table.n_free < n:
            if not self.evict_one():
                return False
        return True

    def evict_one(self, *, keep: Chain | None = None) -> bool:
        """Evict a chain that is not running: one that frees cells if there is any, an unwanted one before a wanted one,
        then the least recently used. False if there is none."""
        victims = [c for c in self._chains.values() if not c.running and c is not keep]
        if not victims:
            return False
        freeing = [c for c in victims if self.table.only_holder(c.cells.view)]
        self.evict(min(freeing or victims, key=lambda c: (self._wanted(c), c.used_at)))
        return True

    def evict(self, chain: Chain) -> None:
        """Drop a chain that is not running, after `leaving` was called with it."""
        self._leaving(chain)
        self.drop(chain)
        self.evictions += 1

    def cells_by_state(self) -> tuple[int, int, int]:
        """Unique cells that are running, owned and idle; a cell counts for the liveliest chain holding it."""
        seen = np.zeros(self.table.n_cells, dtype=np.bool_)
        counts = []
        for state in (0, 1, 2):
            before = int(np.count_nonzero(seen))
            for chain in self._chains.values():
                if _state(chain) == state:
                    seen[chain.cells.view] = True
            counts.append(int(np.count_nonzero(seen)) - before)
        running, owned, idle = counts
        return running, owned, idle

    def _candidates(self, owner: OwnerId, domain: bytes) -> tuple[Chain, ...]:
        """What a placement may start from: of equally long ones the owner's own."""
        own = self._owners.get(owner)
        mine = (own,) if own is not None and own.domain == domain else ()
        return (*mine, *(self._chains.values() if self._sharing else ()))

    def _longest(
        self, chains: Iterable[Chain], domain: bytes, wanted: Int32Array, owner: OwnerId | None = None
    ) -> tuple[Chain | None, int]:
        """The chain to start from, and how many of its tokens: what `owner` holds itself need not be shared."""
        best: Chain | None = None
        length = 0
        for chain in sorted(chains, key=lambda c: self._backend.shared_as_is(c.seq) is not None):
            if chain.domain != domain:
                continue
            n = common_prefix(chain.tokens.view, wanted)
            as_is = self._backend.shared_as_is(chain.seq)
            if as_is is not None and chain.owner != owner and n < as_is + self._least_shared:
                n = min(n, as_is)
            if n > length and self._backend.can_cut(chain.seq, n):
                best, length = chain, n
        return best, length

    def _new(self, owner: OwnerId, domain: bytes, *, keep: Chain | None) -> Chain:
        if not (self._free_seqs or self.evict_one(keep=keep) or self.evict_one()):
            raise NoSequence
        chain = Chain(self._free_seqs.pop(), domain, owner, IntVector(), IntVector())
        self._chains[chain.seq] = chain
        self._owners[owner] = chain
        return chain

    def _start(self, chain: Chain) -> Chain:
        chain.running = True
        self._touch(chain)
        return chain

    def _retire(self, chain: Chain) -> None:
        """Make the chain idle, and drop whichever of it and the other idle ones adds nothing to another chain."""
        if chain.owner is not None:
            del self._owners[chain.owner]
        chain.owner = None
        chain.running = False
        self._touch(chain)
        rivals = [c for c in self._chains.values() if c is not chain and c.domain == chain.domain]
        if not len(chain) or any(self._replaces(rival, chain) for rival in rivals):
            self.drop(chain)
            return
        for rival in rivals:
            if rival.owner is None and self._replaces(chain, rival):
                self.drop(rival)

    def _replaces(self, a: Chain, b: Chain) -> bool:
        """Whether every token of `b` is in `a`, which can be cut to them."""
        agree = len(a) >= len(b) and common_prefix(a.tokens.view, b.tokens.view) == len(b)
        return agree and self._backend.can_cut(a.seq, len(b))

    def _forget(self, chain: Chain) -> None:
        self.table.give_back(chain.cells.view.copy())
        del self._chains[chain.seq]
        self._free_seqs.append(chain.seq)
        if chain.owner is not None:
            del self._owners[chain.owner]

    def _touch(self, chain: Chain) -> None:
        self._tick += 1
        chain.used_at = self._tick
        chain.used_s = self._now()


def _state(chain: Chain) -> int:
    if chain.running:
        return 0
    return 1 if chain.owner is not None else 2
