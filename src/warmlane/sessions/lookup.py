"""The three tiers of a lookup: which warm entry a request may lease, and if none, the first thing in the way.

Nothing is changed here except that expired entries met on the way are reported, for the registry to remove.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from warmlane.sessions.departed import Departed
from warmlane.sessions.lease import LeaseQuery, LiveLeases
from warmlane.sessions.pool import Entry, WarmPool, best_match
from warmlane.sessions.reasons import MissReason


class Found(msgspec.Struct, frozen=True):
    """The result of a lookup. `reason` is for the tenant, `true_reason` for metrics; `expired` entries are to go."""

    entry: Entry | None
    reason: MissReason
    true_reason: MissReason
    expired: tuple[Entry, ...] = ()


def miss(reason: MissReason, expired: tuple[Entry, ...] = ()) -> Found:
    """A lookup that found nothing, for a reason that may be told."""
    return Found(None, reason, reason, expired)


def hit(entry: Entry, expired: tuple[Entry, ...] = ()) -> Found:
    return Found(entry, MissReason.HIT, MissReason.HIT, expired)


class Lookup:
    """Reads a registry's pool, its live leases and the fates of departed ids."""

    def __init__(self, pool: WarmPool, live: LiveLeases, departed: Departed, *, paged: bool) -> None:
        self._pool = pool
        self._live = live
        self._departed = departed
        self._paged = paged

    def by_id(self, query: LeaseQuery, response_id: str, now: float) -> Found:
        """Tier 1. A supplied id wins unconditionally: a miss falls through to nothing."""
        entry = self._pool.get(response_id)
        if entry is None:
            return self._absent(response_id, query)
        if entry.tenant != query.tenant:
            return Found(None, MissReason.UNKNOWN_ID, MissReason.SALT_CHANGED)
        reason = _unfit(entry, query, now)
        if reason is None:
            return hit(entry)
        return miss(reason, (entry,) if reason is MissReason.EXPIRED else ())

    def by_key(self, query: LeaseQuery, scoped_key: bytes, now: float) -> Found:
        """Tier 2. Of several matches in a pool, the one sharing the longest message prefix with the request."""
        candidates = self._pool.keyed(scoped_key)
        if not candidates:
            if self._live.from_key(scoped_key):
                return miss(MissReason.BUSY)
            fate = self._departed.fate(scoped_key)
            return miss(MissReason.UNKNOWN_KEY if fate is None else fate.reason)
        fit, expired, reason = _sift(candidates, query, now)
        if not fit:
            return miss(reason, expired)
        best = best_match(fit, query.history) if self._paged else fit[-1]
        return miss(MissReason.HISTORY_DIVERGED, expired) if best is None else hit(best, expired)

    def any(self, query: LeaseQuery, now: float) -> Found:
        """Tier 3, flat engines only: the one entry there is, whatever its id and key."""
        fit, expired, reason = _sift(self._pool, query, now)
        if fit:
            return hit(fit[-1], expired)
        if not any(entry.tenant == query.tenant for entry in self._pool):
            return Found(None, MissReason.FRESH, reason, expired)
        return miss(reason, expired)

    def _absent(self, response_id: str, query: LeaseQuery) -> Found:
        if (lease := self._live.from_id(response_id)) is not None:
            true, owner = MissReason.BUSY, lease.tenant
        elif (fate := self._departed.fate(response_id)) is not None:
            true, owner = fate.reason, fate.tenant
        else:
            true, owner = (MissReason.MODEL_CHANGED if query.other_model else MissReason.UNKNOWN_ID), query.tenant
        return Found(None, true if owner == query.tenant else MissReason.UNKNOWN_ID, true)


def _unfit(entry: Entry, query: LeaseQuery, now: float) -> MissReason | None:
    """The first of expiry, domain and instructions that keeps an entry from a request."""
    if now > entry.expires_at:
        return MissReason.EXPIRED
    if entry.domain != query.domain:
        return MissReason.SALT_CHANGED
    if entry.instructions != query.instructions:
        return MissReason.INSTRUCTIONS_CHANGED
    return None


_FARTHEST = (MissReason.FRESH, MissReason.EXPIRED, MissReason.SALT_CHANGED, MissReason.INSTRUCTIONS_CHANGED)


def _sift(
    candidates: Iterable[Entry], query: LeaseQuery, now: float
) -> tuple[list[Entry], tuple[Entry, ...], MissReason]:
    """The candidates a request may lease, those that have expired, and if there is none the reason of the one that came
    farthest."""
    fit: list[Entry] = []
    expired: list[Entry] = []
    farthest = 0
    for entry in candidates:
        reason = _unfit(entry, query, now)
        if reason is None:
            fit.append(entry)
            continue
        farthest = max(farthest, _FARTHEST.index(reason))
        if reason is MissReason.EXPIRED:
            expired.append(entry)
    return fit, tuple(expired), _FARTHEST[farthest]
