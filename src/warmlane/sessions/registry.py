"""Warm sessions between requests: who may have one, when it goes, and what a lookup that found none says."""

from __future__ import annotations

import logging
from collections import Counter

from warmlane.clock import Clock
from warmlane.errors import SessionBusy, SessionError
from warmlane.sessions.departed import Departed
from warmlane.sessions.disposal import DISPOSAL_TIMEOUT_S, Disposals
from warmlane.sessions.lease import Adoption, Lease, LeaseQuery, LiveLeases, PeekedHistory, WarmSession
from warmlane.sessions.lookup import Found, Lookup, miss
from warmlane.sessions.paging import is_paged
from warmlane.sessions.pool import Entry, EntryId, Sentinel, WarmPool
from warmlane.sessions.reasons import MissReason
from warmlane.sessions.scoping import MIN_KEY_CHARS, Secrets
from warmlane.sessions.session import ChatSession, Hold, SessionDefaults, SessionEngine
from warmlane.sessions.waiting import holds_in_time

logger = logging.getLogger(__name__)

WARM_CAPACITY = 64
TTL_S = 1800.0


class SessionRegistry:
    """The warm sessions of one model object; aliases of one object share it.

    On a flat engine at most one entry, ever: each lookup and each adoption empties the registry but for the session it
    concerns, since the coming turn overwrites the one cache. On a paged engine up to `warm_capacity`.

    A turn calls, inside its lane: `lease`, `flush_after_lease`, then on success `session.commit` and `adopt`, on
    failure `give_back`, and always `flush_before_leave`. Counters (`hits`, `misses`, `evictions`) only grow.
    """

    def __init__(
        self,
        engine: SessionEngine,
        *,
        secrets: Secrets,
        clock: Clock,
        defaults: SessionDefaults,
        warm_capacity: int = WARM_CAPACITY,
        ttl_s: float = TTL_S,
        disposal_timeout_s: float = DISPOSAL_TIMEOUT_S,
        key_reuse: bool = True,
    ) -> None:
        self.defaults = defaults
        """Carried into every session made from now on."""
        self.key_reuse = key_reuse
        """Applied at adopt and at lookup: what is adopted while it is off is never found by key."""
        self.hits = 0
        self.misses: Counter[MissReason] = Counter()
        self.evictions = 0
        self.paged = is_paged(engine)
        self._engine = engine
        self._secrets = secrets
        self._clock = clock
        self._warm_capacity = warm_capacity
        self._ttl_s = ttl_s
        self._pool = WarmPool()
        self._departed = Departed()
        self._disposals = Disposals(clock=clock, timeout_s=disposal_timeout_s)
        self._live = LiveLeases()
        self._lookup = Lookup(self._pool, self._live, self._departed, paged=self.paged)
        self._dead_generation = engine.generation - 1

    def __len__(self) -> int:
        """Warm entries."""
        return len(self._pool)

    @property
    def pending_disposals(self) -> int:
        """In flight and owed."""
        return self._disposals.pending

    @property
    def owed_disposals(self) -> int:
        """Failed ones that wait for a retry."""
        return self._disposals.owed

    @property
    def leased(self) -> int:
        """Leases that were not ended yet."""
        return len(self._live)

    def peek(self, response_id: str, *, tenant: str, domain: bytes) -> PeekedHistory | None:
        """The history behind a warm id of this tenant, or of one leased right now; None to anyone else. Changes
        nothing."""
        entry = self._pool.get(response_id)
        if entry is None:
            lease = self._live.from_id(response_id)
            entry = lease.source if lease is not None and not lease.dropped else None
        if entry is None or entry.tenant != tenant or self._clock.now() > entry.expires_at:
            return None
        return PeekedHistory(response_id, entry.history, entry.session.tokens, entry.domain == domain)

    def lease(self, query: LeaseQuery) -> Lease:
        """Hand out a session, warm or fresh, and say why. Synchronous; evictions it causes have started on return.

        A hit by key or by tier 3 is already rebased to the request's history; a fresh session is for the caller to
        prime.
        """
        self._discharge_stale()
        scoped_key = self._scoped_key(query)
        found = self._find(query, scoped_key)
        started: list[ChatSession] = []
        for entry in found.expired:
            self._evict(entry, MissReason.EXPIRED, started)
        source = found.entry
        if source is not None:
            self.hits += 1
            self._pool.remove(source)
        else:
            self.misses[found.true_reason] += 1
        if not self.paged:
            self._evict_all(started)
        session = self._hand_out(source, query)
        lease = Lease(
            session=session,
            hit=source is not None,
            reason=found.reason,
            true_reason=found.true_reason,
            tenant=query.tenant,
            domain=query.domain,
            instructions=query.instructions,
            scoped_key=scoped_key,
            stateless=query.stateless,
            response_id=query.response_id,
            source=source,
            started=started,
        )
        self._live.open(lease)
        return lease

    async def flush_after_lease(self, lease: Lease) -> None:
        """Before dispatch: wait for disposals, at most `disposal_timeout_s`. All of them on the exclusive lane, where a
        miss then resets the native cache; those this lookup started on the batched one.

        Raises what `engine.reset` raises.
        """
        await self._flush(lease)
        if not self.paged and not lease.hit:
            await self._engine.reset()

    async def flush_before_leave(self, lease: Lease) -> None:
        """Before leaving the lane: the same wait, on the batched lane for all disposals this request started. Never
        raises."""
        await self._flush(lease)

    def adopt(self, lease: Lease, response_id: str | None = None, *, retention_s: float | None = None) -> Adoption:
        """End a lease whose turn was committed: keep its session, on trial, under `response_id` (default: the query's).

        Not kept, but disposed in the background, are: a session whose id was dropped meanwhile, one of a dead worker,
        and a stateless one on a paged engine. Raises `SessionError` if the lease has ended or the turn is not settled.
        """
        self._check_live(lease)
        session = lease.session
        if session.busy:
            raise SessionBusy("The session's turn still runs.")
        if session.turn_open:
            raise SessionError("Commit the turn before its session is adopted.")
        key = Sentinel.STATELESS if lease.stateless else response_id or lease.response_id
        if key is None:
            raise SessionError("A session is adopted under a response id.")
        self._discharge_stale()
        self._close(lease, MissReason.HISTORY_DIVERGED)
        fate = self._fate(lease)
        if fate is not None:
            if isinstance(key, str):
                self._departed.record(key, lease.tenant, fate)
            self._start_disposal(session, lease.started)
            return Adoption(warm=False)
        if lease.stateless and self.paged:
            self._start_disposal(session, lease.started)
            return Adoption(warm=False)
        now = self._clock.now()
        entry = Entry(
            id=key,
            session=session,
            history=session.history,
            tenant=lease.tenant,
            domain=lease.domain,
            instructions=lease.instructions,
            scoped_key=lease.scoped_key if self.key_reuse else None,
            adopted_at=now,
            expires_at=now + (self._ttl_s if retention_s is None else min(self._ttl_s, retention_s)),
        )
        if not self._insert(entry, lease.started):
            return Adoption(warm=False)
        return Adoption(warm=True, revoke=lambda: self._revoke(entry, lease.started))

    async def give_back(self, lease: Lease) -> bool:
        """End a lease whose turn was not committed. True if the session is warm again under its old id and expiry: the
        engine confirmed the truncation and the id was not dropped. Else it is disposed in the background."""
        self._check_live(lease)
        intact = False
        try:
            if lease.hit and self._fate(lease) is None:
                intact = await holds_in_time(
                    lease.session.rollback(), clock=self._clock, timeout_s=self._disposals.timeout_s
                )
        finally:
            self._discharge_stale()
            source, fate = lease.source, self._fate(lease)
            kept = intact and fate is None and source is not None and self._pool.get(source.id) is None
            self._close(lease, fate or MissReason.EVICTED)
            if kept and source is not None:
                kept = self._insert(source, lease.started)
            else:
                self._start_disposal(lease.session, lease.started)
        return kept

    async def abandon(self, lease: Lease) -> None:
        """End a lease without keeping its session, and dispose that in the background."""
        self._check_live(lease)
        self._close(lease, self._fate(lease) or MissReason.EVICTED)
        self._start_disposal(lease.session, lease.started)

    def discard(self, lease: Lease, sibling: ChatSession) -> None:
        """Dispose in the background a sibling of the leased session that its maker is done with."""
        sibling.purge = lease.dropped
        self._start_disposal(sibling, lease.started)

    async def dispose(self, session: ChatSession) -> None:
        """Dispose a session the caller holds, and wait at most `disposal_timeout_s`. Raises what went wrong, and then
        keeps it owed. Raises `SessionBusy` while the session is in use, `SessionError` if the registry holds it."""
        if session.busy and self._live.of(session) is not None:
            raise SessionBusy("The session's turn still runs.")
        if self._pool.holding(session) is not None:
            raise SessionError("Only the holder of a session disposes it; use drop().")
        lease = self._live.of(session)
        if lease is not None:
            self._close(lease, self._fate(lease) or MissReason.EVICTED)
        await self._disposals.dispose(session)

    def drop(self, response_id: str, *, tenant: str | None) -> bool:
        """The client deleted this id. Evict its entry; if a turn is leased from it or about to adopt it, remember that
        until the turn ends, which then disposes. The cells are dropped at once, not left to share. `tenant` None is an
        admin. True if anything was there."""
        key: EntryId = Sentinel.STATELESS if response_id == Sentinel.STATELESS.value else response_id
        entry = self._pool.get(key)
        found = False
        if entry is not None and tenant in (None, entry.tenant):
            entry.session.purge = True
            self._evict(entry, MissReason.DELETED, [])
            found = True
        return self._live.mark_dropped(key, tenant) or found

    def clear(self) -> None:
        """Evict every entry."""
        self._evict_all([])

    def sweep(self) -> None:
        """Drop what has expired and, on the paged lane, start a retry of each owed disposal. Call it now and then."""
        self._discharge_stale()
        owed_before = self._disposals.owed
        for entry in self._pool:
            if self._clock.now() > entry.expires_at:
                self._evict(entry, MissReason.EXPIRED, [])
        if self.paged and owed_before:
            self._disposals.retry_owed()

    def worker_died(self, generation: int) -> None:
        """The worker of `generation` is gone: so are its cells, hence its entries and owed disposals, at once. Sessions
        on lease are disposed when they are adopted or given back."""
        self._dead_generation = max(self._dead_generation, generation)
        for entry in self._pool:
            if self._is_dead(entry.session):
                entry.session.forget_generation(generation)
                self._evict(entry, MissReason.ENGINE_RESTARTED, [])
        self._disposals.discharge(generation)

    async def flush_disposals(self) -> None:
        """Wait until nothing is pending but what has failed again in this flush."""
        await self._disposals.flush()

    def warm_sessions(self, tenant: str | None) -> list[WarmSession]:
        """This tenant's warm sessions, least recently used first; all of them for None (an admin)."""
        now = self._clock.now()
        entries = tuple(self._pool) if tenant is None else self._pool.of_tenant(tenant)
        return [
            WarmSession(e.id if isinstance(e.id, str) else e.id.value, now - e.adopted_at, e.session.tokens)
            for e in entries
            if now <= e.expires_at
        ]

    def domains(self, tenant: str) -> frozenset[bytes]:
        """The security domains of this tenant's warm sessions."""
        return frozenset(entry.domain for entry in self._pool.of_tenant(tenant))

    def _scoped_key(self, query: LeaseQuery) -> bytes | None:
        """The key this request looks up and adopts under: none beside a previous id, and none for tier 3."""
        key = query.prompt_cache_key
        if key is None or query.stateless or query.previous_response_id is not None:
            return None
        scoped = self._secrets.scoped_key(query.tenant, key)
        if scoped is None and self.key_reuse and self._secrets.warn_once(query.tenant, key):
            logger.warning(
                "a prompt_cache_key of %d characters is ignored: it must have at least %d", len(key), MIN_KEY_CHARS
            )
        return scoped

    def _find(self, query: LeaseQuery, scoped_key: bytes | None) -> Found:
        now = self._clock.now()
        if query.stateless:
            return miss(MissReason.FRESH) if self.paged else self._lookup.any(query, now)
        if query.previous_response_id is not None:
            return self._lookup.by_id(query, query.previous_response_id, now)
        if query.prompt_cache_key is None:
            return miss(MissReason.NO_KEY)
        if scoped_key is None or not self.key_reuse:
            return miss(MissReason.KEY_INELIGIBLE)
        return self._lookup.by_key(query, scoped_key, now)

    def _hand_out(self, source: Entry | None, query: LeaseQuery) -> ChatSession:
        if source is None:
            return ChatSession(self._engine, domain=query.domain, defaults=self.defaults, hold=Hold.LEASED)
        source.leased_once = True
        source.session.hold = Hold.LEASED
        if query.stateless or query.previous_response_id is None:
            source.session.rebase(query.history)
        return source.session

    def _insert(self, entry: Entry, started: list[ChatSession]) -> bool:
        """Put an entry in, and evict what must make room. False if that was the entry itself."""
        if not self.paged:
            self._evict_all(started, keep=entry.session)
        displaced = self._pool.put(entry)
        if displaced is not None:
            self._gone(displaced, MissReason.EVICTED, started)
        self._departed.forget_entry(entry)
        entry.session.hold = Hold.KEPT
        while len(self._pool) > self._warm_capacity:
            self._evict(self._pool.evictee(), MissReason.EVICTED, started)
        return self._pool.get(entry.id) is entry

    def _evict(self, entry: Entry, reason: MissReason, started: list[ChatSession]) -> None:
        """The one way out for an entry that is not leased: gone at once, its disposal started."""
        self._pool.remove(entry)
        self._gone(entry, reason, started)

    def _gone(self, entry: Entry, reason: MissReason, started: list[ChatSession]) -> None:
        """What follows the removal of an entry."""
        self._departed.record_entry(entry, reason)
        if reason is not MissReason.DELETED:
            self.evictions += 1
        self._start_disposal(entry.session, started)

    def _evict_all(self, started: list[ChatSession], *, keep: ChatSession | None = None) -> None:
        for entry in self._pool:
            if entry.session is not keep:
                self._evict(entry, MissReason.EVICTED, started)

    def _revoke(self, entry: Entry, started: list[ChatSession]) -> None:
        if self._pool.get(entry.id) is entry and not entry.leased_once:
            self._evict(entry, MissReason.EVICTED, started)

    def _start_disposal(self, session: ChatSession, started: list[ChatSession]) -> None:
        session.hold = Hold.KEPT
        session.forget_generation(self._dead_generation)
        started.append(session)
        self._disposals.start(session)

    async def _flush(self, lease: Lease) -> None:
        if self.paged:
            await self._disposals.wait(lease.started)
        else:
            await self._disposals.flush(self._disposals.timeout_s)

    def _check_live(self, lease: Lease) -> None:
        if self._live.of(lease.session) is not lease:
            raise SessionError("The lease has ended.")

    def _close(self, lease: Lease, reason: MissReason) -> None:
        """End a lease; `reason` is what its old id answers from now on."""
        self._live.close(lease)
        if lease.source is not None:
            self._departed.record_entry(lease.source, reason)

    def _fate(self, lease: Lease) -> MissReason | None:
        """Why this lease's session cannot be kept, if so."""
        if lease.dropped:
            return MissReason.DELETED
        return MissReason.ENGINE_RESTARTED if self._is_dead(lease.session) else None

    def _is_dead(self, session: ChatSession) -> bool:
        return session.owner is not None and session.owner.generation <= self._dead_generation

    def _discharge_stale(self) -> None:
        """A worker that was replaced without a word is dead all the same."""
        newest_dead = self._engine.generation - 1
        if newest_dead > self._dead_generation:
            self.worker_died(newest_dead)
