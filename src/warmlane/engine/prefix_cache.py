"""All KV an engine has computed, hot and in the lower tiers: what of a prompt is found, and what leaves for where.

An idle chain leaves the hot pool as a snapshot of what it does not share, and comes back in milliseconds. An eviction
loses work, never correctness; every tier is bounded by its domain and verified token by token.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import numpy as np

from warmlane.engine.backends.base import Backend
from warmlane.engine.chains import Chain, ChainPool
from warmlane.engine.divergence import divergence_at, nearest
from warmlane.engine.leaving import Leaver
from warmlane.engine.protocol import Divergence, OwnerId
from warmlane.engine.restoring import Restorer
from warmlane.engine.tiers.disk import DiskTier
from warmlane.engine.tiers.pins import Pins
from warmlane.engine.tiers.ram import RamSegment, RamTier
from warmlane.engine.tiers.saver import Saver
from warmlane.engine.vectors import Int32Array, IntVector, common_prefix, digest

WORTH_KEEPING = 64
"""Tokens of a chain that are worth a snapshot of their own: less is recomputed as quickly as it is found again."""

CHECKPOINT_TOKENS = 512
"""How far apart snapshots of a prompt are on the way, for models that cannot be cut back."""

MOST_BATCHES_COPIED = 32
"""A chain that more batches have computed is not set apart: a copy of its cells would be a gap in others' streams."""

Interest = tuple[bytes, Int32Array]
"""A domain and the tokens of a turn that runs or waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSettings:
    """`hot_tokens` bounds the cells of chains no turn runs on (None: not at all), `ram_bytes` the RAM tier; what rests
    for `idle_s` is written to the disk tier. A prefix shorter than `least_shared` tokens is stored with each chain that
    has it: a conversation's snapshot should not hang on another's for the first words of a template. A chain to which
    `apart_tokens` are to be added is worth setting apart, where streams are not to be slowed down. Copying ahead begins
    `rest_s` after the last turn: who goes on at once does not wait for it."""

    hot_tokens: int | None = None
    ram_bytes: int = 0
    idle_s: float = 30.0
    least_shared: int = 64
    apart_tokens: int = 512
    rest_s: float = 0.5


@dataclass(frozen=True, slots=True)
class Placement:
    """A running chain, and how many of its tokens came from which tier."""

    chain: Chain
    hot: int
    ram: int
    disk: int
    divergence: Divergence | None


class PrefixCache:
    """The hot pool of a backend and its lower tiers. Used by one thread.

    `interests` names the turns that run and wait. With `sharing` off there is one chain and no lower tier.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        sharing: bool = True,
        settings: CacheSettings = CacheSettings(),
        disk: DiskTier | None = None,
        interests: Callable[[], Iterable[Interest]] = lambda: (),
        now: Callable[[], float],
    ) -> None:
        self._backend = backend
        self._sharing = sharing
        self._whole = not backend.info.can_truncate
        self._window = backend.info.attention_window
        self._settings = settings
        self._interests = interests
        self._now = now
        self.pins = Pins(now=now)
        self.pool = ChainPool(
            backend,
            sharing=sharing,
            leaving=self._spill,
            wanted=self._is_wanted,
            now=now,
            least_shared=settings.least_shared,
        )
        self.ram = RamTier(
            settings.ram_bytes if sharing else 0, whole=self._whole, window=self._window, now=now, pins=self.pins
        )
        self.disk = disk if sharing else None
        self.leaver = Leaver(backend, self.pool, self.ram, now=now)
        self._saver = Saver(
            self.pool,
            self.ram,
            self.disk,
            store=self._store,
            idle_s=settings.idle_s,
            least_shared=settings.least_shared,
            now=now,
        )
        self.restorer = Restorer(
            backend,
            self.pool,
            self.ram,
            self.disk,
            damaged=self._saver.forget,
            least_shared=settings.least_shared,
            now=now,
        )
        self.spills = 0

    @property
    def rest_s(self) -> float:
        return self._settings.rest_s

    @property
    def has_unsaved(self) -> bool:
        """Whether `tick` has something to do for the disk tier sooner or later."""
        return self._saver.has_unsaved

    def reusable(self, domain: bytes, tokens: Int32Array) -> int:
        """How many tokens a placement would find in memory, hot or not."""
        hot = self.pool.reusable(domain, tokens)
        return self.ram.index.covered(domain, tokens[:-1], hot) if self._sharing else hot

    def place(
        self,
        owner: OwnerId,
        domain: bytes,
        tokens: Int32Array,
        *,
        share: bool = True,
        apart: bool = False,
        prefill_ms_per_token: float | None = None,
    ) -> Placement:
        """A running chain of `owner` with the longest prefix of `tokens` that any tier has; see `ChainPool.place`
        and `Restorer.extend`. With `apart` a chain that is to
        grow long does so where it does not slow down others, if there is such a place."""
        wanted = tokens[:-1]
        branch, cached = nearest(self._cached(domain, tokens), tokens)
        own = self.pool.of(owner)
        if own is not None and own.domain == domain and share:
            self._keep_before_cut(own, wanted)
        chain = self.pool.place(owner, domain, tokens, share=share)
        long = tokens.size - len(chain) >= self._settings.apart_tokens
        if apart and long and len(chain.runs) <= MOST_BATCHES_COPIED:
            self._backend.set_apart(chain.seq, len(chain))
        ram, disk = self.restorer.extend(chain, wanted, prefill_ms_per_token) if share and self._sharing else (0, 0)
        # Where one prompt has left another, a third may leave them as well.
        self.leave_way_back(chain, branch)
        divergence = divergence_at(self._backend.tokenizer, tokens, branch, cached)
        return Placement(chain, len(chain) - ram - disk, ram, disk, divergence)

    def pin(self, domain: bytes, tokens: Int32Array, ttl_s: float) -> None:
        """Give up this prefix after everything else that is not in use, for `ttl_s` from now on."""
        if self._sharing and tokens.size:
            self.pins.add(domain, tokens, ttl_s)
            self.ram.pin(domain)

    def release(self, owner: OwnerId, *, purge: bool) -> None:
        """See `ChainPool.release`; a purge reaches every tier. What others rest on stays."""
        chain = self.pool.of(owner)
        self._saver.release(owner, purge=purge)
        if purge and chain is not None:
            self._rescue(chain)
        self.pool.release(owner, purge=purge)

    def forget(self, domain: bytes, prompt: bytes, *, at: int, keep: int) -> bool:
        """See `protocol.Engine.forget`. Who asked the same is not told apart: to forget too much costs work; too
        little, a promise. False if a file could not be removed."""
        named = self._beginning_with(domain, prompt, at) if prompt else [IntVector().view]
        forgot = [self._forget(domain, tokens, keep) for tokens in named]
        return all(forgot)

    def _forget(self, domain: bytes, tokens: Int32Array, keep: int) -> bool:
        """What extends `keep` of these tokens; everything of the domain if there are none."""
        for chain in self.pool:
            if chain.running or chain.domain != domain:
                continue
            if not tokens.size:
                self.pool.drop(chain)
            elif chain.owner is None and common_prefix(chain.tokens.view, tokens) > keep:
                self._cut(chain, keep)
        self.pins.forget(domain, tokens, keep=keep)
        return self._saver.forget_domain(domain, tokens, keep=keep)

    def _cut(self, chain: Chain, keep: int) -> None:
        # One that cannot be cut is dropped by the pool; an empty one is of no use.
        if self.pool.truncate(chain, keep) and not keep:
            self.pool.drop(chain)

    def _beginning_with(self, domain: bytes, prompt: bytes, at: int) -> list[Int32Array]:
        return [t.copy() for t in self._of_domain(domain) if t.size >= at and digest(t[:at]) == prompt]

    def _cached(self, domain: bytes, tokens: Int32Array) -> Iterable[Int32Array]:
        """What each tier has of the domain that may agree with `tokens` the longest."""
        chains = sorted((c for c in self.pool if c.domain == domain), key=lambda c: c.used_at, reverse=True)
        yield from (c.tokens.view for c in chains)
        in_ram = self.ram.index.longest(domain, tokens)
        on_disk = self.disk.longest(domain, tokens) if self.disk is not None else None
        yield from (found[0].tokens for found in (in_ram, on_disk) if found is not None)

    def _of_domain(self, domain: bytes) -> Iterable[Int32Array]:
        yield from (c.tokens.view for c in self.pool if c.domain == domain)
        yield from (s.tokens for s in self.ram.index if s.domain == domain)
        if self.disk is not None:
            yield from self.disk.of_domain(domain)

    def checkpoint(self, chain: Chain, remaining: int) -> None:
        """After a slice of prefill, with `remaining` tokens to compute. A model that cannot be cut back returns to
        snapshots only, so some are taken on the way: where the last token of the prompt is all that is missing, which
        is where the same prompt and a longer one meet it; where another prompt left this one; now and then before."""
        length = len(chain)
        if not self._needs_ways_back(length):
            return
        if remaining == 1 or length in chain.stops or length - chain.kept_at >= CHECKPOINT_TOKENS:
            chain.kept_at = length
            chain.stops = {stop for stop in chain.stops if stop > length}
            self._spill(chain)

    def leave_way_back(self, chain: Chain, length: int) -> None:
        """Another prompt shares `length` tokens of what the chain will hold: take a `checkpoint` there, if the chain
        cannot be cut to it later."""
        if self._needs_ways_back(length) and length - len(chain) >= WORTH_KEEPING:
            chain.stops.add(length)

    def slice_limit(self, chain: Chain, remaining: int) -> int:
        """The most tokens of prefill to compute before the next `checkpoint`."""
        length = len(chain)
        if not self.ram.limit_bytes or remaining <= 1 or not self._needs_ways_back(length + remaining):
            return remaining
        return min([remaining - 1, *(stop - length for stop in chain.stops if stop > length)])

    def trim(self, *, busy: bool, decoding: bool = False) -> None:
        """Hold the hot budget. While turns run (`busy`) cells of no use to them leave as well: attention costs by the
        highest used cell, so that one short chain behind free ones slows every step as if those were used. While some
        of them are `decoding` the `leaver` takes one after the other."""
        hot_tokens = self._settings.hot_tokens
        if hot_tokens is None or not self._sharing:
            return
        leaving = self.leaver.leaving
        if leaving is not None and self._is_taken_soon(leaving):
            self.leaver.stay()
        if self.leaver.busy and self._idle_cells() > hot_tokens:
            self.leaver.go_on(math.inf)
        while self._idle_cells() > hot_tokens and self.pool.evict_one():
            pass
        if not busy or not self.ram.limit_bytes or self.leaver.busy:
            return
        bit_by_bit = decoding and not self._whole and not self._window
        while (chain := self._of_no_use()) is not None:
            if bit_by_bit and self.leaver.takes(chain, start := self._kept_to(chain)):
                self.leaver.begin(chain, start)
                return
            self.pool.evict(chain)

    def _of_no_use(self) -> Chain | None:
        """The idle chain that was used the longest ago and keeps cells in use that no turn will take."""
        return next(
            (
                chain
                for chain in sorted((c for c in self.pool if not c.running), key=lambda c: c.used_at)
                if self.pool.table.only_holder(chain.cells.view) and not self._is_taken_soon(chain)
            ),
            None,
        )

    def copy_ahead(self, room_ms: float) -> bool:
        """While nobody runs: copy what only the hot pool has, so that it leaves at once when turns begin. Takes no
        memory that others' snapshots are in. False if there is nothing left to copy."""
        chain = self.leaver.leaving or self._to_copy()
        if chain is None:
            return False
        if not self.leaver.busy:
            # Also what other chains hold now: they leave as well.
            start = self._in_memory(chain, 0)
            if np.count_nonzero(chain.runs.view >= start) <= MOST_BATCHES_COPIED:
                self._spill(chain, start)
            elif self.leaver.takes(chain, start):
                self.leaver.begin(chain, start)
        self.leaver.go_on(room_ms, evict=False)
        if not self.leaver.busy:
            chain.ahead = len(chain)
        return True

    def _to_copy(self) -> Chain | None:
        """The most recently used chain that was not copied yet, if any is to be."""
        leaves = self._settings.hot_tokens is not None and self._sharing and not self._whole and not self._window
        if not leaves or 2 * self.ram.used_bytes >= self.ram.limit_bytes:
            return None
        chains = (c for c in self.pool if not c.running and c.ahead != len(c))
        return max(chains, key=lambda c: c.used_at, default=None)

    def tick(self) -> None:
        """Hand on to the disk tier what has been idle long enough. Cheap; call it between steps."""
        self._saver.tick()

    def clear(self) -> None:
        """Drop everything in memory."""
        self.pool.clear()
        self.ram.clear()
        self.pins.clear()

    def close(self, timeout_s: float) -> None:
        """Save what is worth it, for at most this long."""
        self.leaver.stay()
        self._saver.close(timeout_s)

    def _idle_cells(self) -> int:
        _, owned, idle = self.pool.cells_by_state()
        return owned + idle

    def _is_taken_soon(self, chain: Chain) -> bool:
        """Whether a turn that waits will take at least half of what only this chain holds."""
        shared = self.pool.table.n_shared(chain.cells.view)
        return any(
            domain == chain.domain and 2 * (common_prefix(chain.tokens.view, tokens) - shared) >= len(chain) - shared
            for domain, tokens in self._interests()
        )

    def _needs_ways_back(self, length: int) -> bool:
        """Whether a chain of this length may have lost what lies behind its end."""
        return self._whole or 0 < self._window < length

    def _is_wanted(self, chain: Chain) -> bool:
        """Whether some of the chain is pinned, or a turn that runs or waits shares at least half of it."""
        return self.pins.until_s(chain.domain, chain.tokens.view) > 0 or any(
            domain == chain.domain and 2 * common_prefix(chain.tokens.view, tokens) >= len(chain)
            for domain, tokens in self._interests()
        )

    def _spill(self, chain: Chain, start: int | None = None) -> None:
        """Keep what only this chain holds, of all that is in memory; or what it holds from `start` on."""
        if not self.ram.limit_bytes or not len(chain):
            return
        start = self._kept_to(chain) if start is None else start
        if start < len(chain) and self._store(chain, 0 if self._whole else start) is not None:
            self.spills += 1

    def _kept_to(self, chain: Chain) -> int:
        """How many of the chain's tokens memory holds without it, hot or not."""
        return self._in_memory(chain, self._shared(chain))

    def _in_memory(self, chain: Chain, begin: int) -> int:
        """How far the RAM tier goes on with the chain from `begin` on."""
        trail = self.ram.index.trail(chain.domain, chain.tokens.view, begin, least=self._settings.least_shared)
        for segment, _ in reversed(trail):
            self.ram.index.touch(segment, self._now())
        return trail[-1][1] if trail else begin

    def _shared(self, chain: Chain) -> int:
        """How many of the chain's tokens other hot chains will go on holding, and can be cut back to."""
        shared = 0 if self._needs_ways_back(len(chain)) else self.pool.table.n_shared(chain.cells.view)
        return shared if shared >= min(self._settings.least_shared, len(chain)) else 0

    def _store(self, chain: Chain, start: int) -> RamSegment | None:
        fill = partial(self._backend.snapshot, chain.seq, start)
        return self.ram.store(chain.domain, chain.tokens.view, start, chain.owner, fill)

    def _keep_before_cut(self, own: Chain, wanted: Int32Array) -> None:
        common = common_prefix(own.tokens.view, wanted)
        if self._whole or len(own) - common >= WORTH_KEEPING:
            self._spill(own)

    def _rescue(self, chain: Chain) -> None:
        """Before a chain is purged: keep the prefix that others' snapshots rest on and nobody else holds."""
        if self._whole or not self.ram.limit_bytes:
            return
        tokens = chain.tokens.view
        needed = self.ram.index.needed(chain.domain, tokens)
        start = self.ram.index.covered(chain.domain, tokens[:needed], self.pool.table.n_shared(chain.cells.view))
        if needed > start and self.pool.truncate(chain, needed):
            segment = self._store(chain, start)
            if segment is not None:
                segment.owner = None
