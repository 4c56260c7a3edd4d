"""What goes to the disk tier, and when: soon after it has left the hot pool, once it has been idle for a while, before
memory runs short, and at the end."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from functools import partial

from warmlane.engine.chains import Chain, ChainPool
from warmlane.engine.protocol import OwnerId
from warmlane.engine.tiers.disk import DiskTier
from warmlane.engine.tiers.ram import RamSegment, RamTier
from warmlane.engine.vectors import Int32Array, common_prefix

EVERY_S = 1.0
"""How often `tick` looks for something to save."""

LEFT_S = 5.0
"""How long what has left the hot pool rests before it is saved, if that is less than others rest: a kill costs little,
and a conversation that leaves between two of its turns is not written at each."""

MOST_PENDING = 4
RAM_SHARE_KEPT_CLEAN = 0.75
"""Beyond this share of the RAM tier what is evicted next is saved whether it has been idle or not."""


class Saver:
    """Copies idle snapshots from RAM to disk; without a disk tier it only keeps track of owners. Used by one thread,
    while the disk tier's writer reads what is `pending`."""

    def __init__(
        self,
        pool: ChainPool,
        ram: RamTier,
        disk: DiskTier | None,
        *,
        store: Callable[[Chain, int], RamSegment | None],
        idle_s: float,
        least_shared: int,
        now: Callable[[], float],
    ) -> None:
        self._pool = pool
        self._ram = ram
        self._disk = disk
        self._store = store
        self._idle_s = idle_s
        self._least = least_shared
        self._now = now
        self._next_s = 0.0
        self._pending: list[RamSegment] = []
        self._done: queue.SimpleQueue[RamSegment] = queue.SimpleQueue()

    @property
    def has_unsaved(self) -> bool:
        if self._disk is None:
            return False
        chains = any(not c.running and c.kept < len(c) for c in self._pool)
        return chains or bool(self._pending) or any(not s.saved for s in self._ram.index)

    def tick(self) -> None:
        if self._disk is None:
            return
        self._settle()
        now_s = self._now()
        if now_s < self._next_s:
            return
        self._next_s = now_s + EVERY_S
        full = self._ram.allocated_bytes > RAM_SHARE_KEPT_CLEAN * self._ram.limit_bytes
        for segment in self._ram.index:
            if not segment.saved and (full or self._rests(segment, now_s - segment.used_s)):
                self._save(segment)
        for chain in self._pool:
            if not chain.running and now_s - chain.used_s >= self._idle_s:
                self._save_chain(chain)

    def release(self, owner: OwnerId, *, purge: bool) -> None:
        """The owner lets go of what its conversation has put into the lower tiers, or takes it along."""
        for segment in (*self._ram.index, *self._pending):
            if segment.owner == owner:
                segment.owner = None
                segment.gone = segment.gone or purge
                if purge and segment in self._ram.index:
                    self._ram.remove(segment)
        if self._disk is not None and purge:
            self._disk.remove_of(owner)
        elif self._disk is not None:
            self._disk.disown(owner)

    def forget(self, segment: RamSegment) -> None:
        """A segment turned out to be of no use: remove it from memory and from disk."""
        segment.gone = True
        if segment in self._ram.index:
            self._ram.remove(segment)
        if self._disk is not None:
            self._disk.remove_like(segment)

    def forget_domain(self, domain: bytes, tokens: Int32Array, *, keep: int) -> bool:
        """See `PrefixCache.forget`; False if a file could not be removed."""
        for segment in (*self._ram.index, *self._pending):
            if segment.is_part_of(domain, tokens, keep=keep):
                segment.gone = True
                if segment in self._ram.index:
                    self._ram.remove(segment)
        return self._disk is None or self._disk.forget(domain, tokens, keep=keep)

    def close(self, timeout_s: float) -> None:
        """Save everything, the most recently used first, as far as the time goes."""
        if self._disk is None:
            return
        end_s = time.monotonic() + timeout_s
        for chain in sorted(self._pool, key=lambda c: c.used_at, reverse=True):
            self._save_chain(chain, at_once=True)
            if chain.kept < len(chain) and self._pending:
                # Memory may be full of what the writer has yet to read.
                self._disk.drain(max(0.0, end_s - time.monotonic()))
                self._settle()
                self._save_chain(chain, at_once=True)
        for segment in reversed(tuple(self._ram.index)):
            self._save(segment, at_once=True)
        self._disk.close(max(0.0, end_s - time.monotonic()))
        self._settle()

    def _rests(self, segment: RamSegment, idle_s: float) -> bool:
        """Whether a snapshot has been of no use for so long that it is to be saved."""
        return idle_s >= self._idle_s or (idle_s >= LEFT_S and not self._is_hot(segment))

    def _is_hot(self, segment: RamSegment) -> bool:
        n = segment.tokens.size
        return any(
            chain.domain == segment.domain and common_prefix(chain.tokens.view, segment.tokens) == n
            for chain in self._pool
        )

    def _save_chain(self, chain: Chain, *, at_once: bool = False) -> None:
        """Save what of a hot chain no lower tier has."""
        if self._disk is None or chain.kept >= len(chain) or (not at_once and len(self._pending) >= MOST_PENDING):
            return
        tokens = chain.tokens.view
        start = self._disk.covered(chain.domain, tokens, least=self._least)
        start = self._ram.index.covered(chain.domain, tokens, start, least=self._least)
        if start < len(chain):
            segment = self._store(chain, start if self._pool.can_truncate else 0)
            if segment is None:
                return
            self._save(segment, at_once=at_once)
        chain.kept = len(chain)

    def _save(self, segment: RamSegment, *, at_once: bool = False) -> None:
        if self._disk is None or segment.saved or (not at_once and len(self._pending) >= MOST_PENDING):
            return
        segment.saved = True
        self._ram.hold(segment)
        self._pending.append(segment)
        self._disk.save(segment, partial(self._done.put, segment))

    def _settle(self) -> None:
        """Take note of what the writer has finished."""
        while not self._done.empty():
            segment = self._done.get()
            self._pending.remove(segment)
            self._ram.let_go(segment)
