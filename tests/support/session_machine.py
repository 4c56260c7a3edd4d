"""Registry and lane, driven step by step: turns as tasks on a private event loop, an engine whose every call the
machine lets go, fails or leaves hanging, and a clock moved by hand.

After every step the machine checks the invariants against what it knows of its own turns.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from enum import Enum, auto

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from support.clock import VirtualClock
from support.owner_engine import DEFAULTS, OwnerEngine
from warmlane.conversation.messages import Message, Role, Text
from warmlane.errors import EngineError, Overloaded, QueueFull, SessionError
from warmlane.sessions import (
    ChatSession,
    Lane,
    Lease,
    LeaseQuery,
    MissReason,
    Permit,
    Seat,
    Secrets,
    SessionRegistry,
    effective_capacity,
)

MAX_WAITING = 4
TENANTS = ("ann", "bob", "cy")
KEYS = (None, "", "short", "the key of ann's agent", "another good key")
SALTS = (None, "pepper")
TTL_S = 100.0


@dataclass(frozen=True)
class Wish:
    """What a client asks, and how its turn will go if nothing disturbs it."""

    tenant: str
    salt: str | None
    key: str | None
    mode: str
    instructions: str | None
    pick: int
    accepted: bool
    commits: bool
    enters: bool


WISHES = st.builds(
    Wish,
    tenant=st.sampled_from(TENANTS),
    salt=st.sampled_from([None, None, None, *SALTS]),
    key=st.sampled_from([*KEYS, KEYS[-1], KEYS[-1], KEYS[-1]]),
    mode=st.sampled_from(["chain", "chain", "keyed", "stateless", "new", "foreign id"]),
    instructions=st.sampled_from([None, None, None, None, ""]),
    pick=st.sampled_from([0, 0, 0, 1, 2, 3, 7]),
    accepted=st.sampled_from([True, True, False]),
    commits=st.sampled_from([True, True, True, False]),
    enters=st.sampled_from([True, True, False]),
)


class Phase(Enum):
    """Where a turn is, as the machine sees it."""

    RESERVED = auto()
    QUEUED = auto()
    SEATED = auto()
    OVER = auto()


@dataclass(eq=False)
class Turn:
    """One request: what it asks, and the permit, task, seat and lease it has."""

    tenant: str
    query: LeaseQuery
    response_id: str
    accepted: bool
    commits: bool
    permit: Permit | None = None
    seat: Seat | None = None
    task: asyncio.Task[None] | None = None
    phase: Phase = Phase.RESERVED
    lease: Lease | None = None
    entered_serial: int = 0
    cancelled: bool = False


@dataclass
class Books:
    """What the machine remembers to check the code against."""

    turns: list[Turn] = field(default_factory=list)
    seatings: list[Turn] = field(default_factory=list)
    ids: list[tuple[str, str]] = field(default_factory=list)
    dropped: set[str] = field(default_factory=set)
    serial: int = 0


class SessionMachine(RuleBasedStateMachine):
    """See the module. Subclasses or `initialize` choose flat or paged."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = VirtualClock()
        self.secrets = Secrets(bytes(32))
        self.books = Books()

    @initialize(
        capacity=st.sampled_from([1, 1, 2, 3]),
        tenants=st.sampled_from([1, 3]),
        warm_capacity=st.integers(1, 4),
    )
    def build(self, capacity: int, tenants: int, warm_capacity: int) -> None:
        self.engine = OwnerEngine(capacity=capacity)
        self.engine.hold = {"generate", "release", "truncate", "reset"}
        self.registry = SessionRegistry(
            self.engine,
            secrets=self.secrets,
            clock=self.clock,
            defaults=DEFAULTS,
            warm_capacity=warm_capacity,
            ttl_s=TTL_S,
            disposal_timeout_s=5.0,
        )
        self.warm_capacity = warm_capacity if capacity > 1 else 1
        self.lane = Lane(
            capacity=effective_capacity(self.engine),
            max_waiting=MAX_WAITING,
            clock=self.clock,
            queue_timeout_s=50.0,
            tenants=tenants,
        )
        self.foreign = Lane(capacity=1, max_waiting=2, clock=self.clock)

    # arrivals

    @rule(wishes=st.lists(WISHES, min_size=1, max_size=4))
    def arrive(self, wishes: list[Wish]) -> None:
        for wish in wishes:
            self._arrive(wish)

    @rule(wish=WISHES, rounds=st.integers(1, 3))
    def whole_turns(self, wish: Wish, rounds: int) -> None:
        """Turns of one client, each to its end while nothing else moves: they fill the registry."""
        for _ in range(rounds):
            self.run_on(8)
            self._arrive(wish)
        self.run_on(8)

    def _arrive(self, wish: Wish) -> None:
        tenant, mode, pick = wish.tenant, wish.mode, wish.pick
        previous = None
        if mode == "chain" and (mine := [i for t, i in self.books.ids if t == tenant]):
            previous = mine[-1 - pick % len(mine)]
        elif mode == "foreign id" and (theirs := [i for t, i in self.books.ids if t != tenant]):
            previous = theirs[-1 - pick % len(theirs)]
        self.books.serial += 1
        response_id = f"r{self.books.serial}"
        query = LeaseQuery(
            tenant=tenant,
            domain=self.secrets.domain(tenant, wish.salt),
            instructions=wish.instructions,
            previous_response_id=previous,
            prompt_cache_key=wish.key if mode in ("keyed", "chain") else None,
            history=tuple(Message(Role.USER, (Text(f"{n}"),)) for n in range(1 + pick % 4)),
            stateless=mode == "stateless",
            response_id=response_id,
        )
        turn = Turn(tenant, query, response_id, wish.accepted, wish.commits)
        before = self._counts()
        room = self._room(tenant)
        try:
            turn.permit = self.lane.reserve(tenant)
        except QueueFull:
            assert not room
            assert self._counts() == before
            return
        assert room
        self.books.turns.append(turn)
        if wish.enters:
            self._enter(turn, turn.permit)

    @precondition(lambda self: self._in_phase(Phase.RESERVED))
    @rule(pick=st.integers(0, 50))
    def enter_reserved(self, pick: int) -> None:
        reserved = self._in_phase(Phase.RESERVED)
        turn = reserved[pick % len(reserved)]
        self._enter(turn, turn.permit)

    @rule(pick=st.integers(0, 50), times=st.integers(1, 2))
    def release_permit(self, pick: int, times: int) -> None:
        if self.books.turns:
            turn = self.books.turns[pick % len(self.books.turns)]
            assert turn.permit is not None
            for _ in range(times):
                turn.permit.release()
            if turn.phase is Phase.RESERVED:
                turn.phase = Phase.OVER

    @rule(where=st.sampled_from(["foreign", "released", "handed off"]))
    def enter_with_bad_permit(self, where: str) -> None:
        """It gives no credit: the arrival is judged like any other, and a slot never entered frees its unit."""
        lane = self.foreign if where == "foreign" else self.lane
        if lane is self.lane and not self._room("ann"):
            return
        permit = lane.reserve("ann")
        if where == "released":
            permit.release()
        elif where == "handed off":
            self.lane.enter(permit)
        before, room = self._counts(), self._room("ann")
        try:
            seat = self.lane.enter(permit, tenant="ann")
        except QueueFull:
            assert not room
        else:
            assert room
            assert sum(self._counts()) == sum(before) + 1
            del seat
        assert self._counts() == before, "a slot never entered kept its unit"
        assert self.foreign.permits == (where == "foreign")
        permit.release()
        permit.release()
        assert self.foreign.permits == 0

    # what happens to turns

    @precondition(lambda self: self._cancellable())
    @rule(pick=st.integers(0, 50))
    def cancel_turn(self, pick: int) -> None:
        live = self._cancellable()
        self._cancel(live[pick % len(live)])
        self._settle()

    @precondition(lambda self: self.engine.held and self._in_phase(Phase.QUEUED))
    @rule(pick=st.integers(0, 50), other=st.integers(0, 50))
    def let_go_and_cancel_in_one_tick(self, pick: int, other: int) -> None:
        """A seat may be handed to a waiter whose cancellation is already on its way."""
        waiting = self._in_phase(Phase.QUEUED)
        self.engine.held[pick % len(self.engine.held)].succeed()
        self._settle(ticks=other % 4)
        self._cancel(waiting[other % len(waiting)])
        self._settle()

    @precondition(lambda self: self.engine.held)
    @rule(pick=st.integers(0, 50), fails=st.booleans())
    def let_go(self, pick: int, fails: bool) -> None:
        call = self.engine.held[pick % len(self.engine.held)]
        if fails:
            call.fail()
        else:
            call.succeed()
        self._settle()

    @precondition(lambda self: self.engine.held)
    @rule(rounds=st.integers(1, 12))
    def run_on(self, rounds: int) -> None:
        """The engine answers what it was asked, and what follows from that."""
        for _ in range(rounds):
            for call in list(self.engine.held):
                call.succeed()
            self._settle(ticks=8)
        self._settle()

    @rule(seconds=st.sampled_from([0.5, 4.0, 6.0, 60.0, 101.0]), truncates=st.booleans())
    def advance(self, seconds: float, truncates: bool) -> None:
        """Time passes; meanwhile the engine may gain or lose the ability to truncate."""
        self.engine.truncates = truncates
        self.clock.advance(seconds)
        self._settle()

    # the registry

    @rule(pick=st.integers(0, 50), foreign=st.booleans())
    def drop(self, pick: int, foreign: bool) -> None:
        ids = [(t.tenant, t.response_id) for t in self.books.turns]
        live = [t for t in self.books.turns if self._holds_lease(t)]
        if pick % 2 and live:
            turn = live[pick % len(live)]
            previous = turn.query.previous_response_id
            leased_from = previous if previous is not None and turn.lease and turn.lease.hit else turn.response_id
            ids = [(turn.tenant, leased_from if pick % 4 == 1 else turn.response_id)]
        if ids:
            tenant, response_id = ids[-1 - pick % len(ids)]
            if foreign:
                assert self.registry.peek(response_id, tenant=f"not {tenant}", domain=b"") is None
                assert not self.registry.drop(response_id, tenant=f"not {tenant}")
            else:
                known = self.registry.peek(response_id, tenant=tenant, domain=b"") is not None
                about_to_adopt = any(t.response_id == response_id for t in live)
                if self.registry.drop(response_id, tenant=tenant):
                    self.books.dropped.add(response_id)
                else:
                    assert not known
                    assert not about_to_adopt
            self._settle()

    @rule(what=st.sampled_from(["sweep", "clear", "keys on", "keys off", "restart", "silent restart"]))
    def disturb(self, what: str) -> None:
        if what == "sweep":
            self.registry.sweep()
            assert all(entry.age_s <= TTL_S for entry in self.registry.warm_sessions(None))
        elif what == "clear":
            self.registry.clear()
            assert len(self.registry) == 0
        elif what in ("keys on", "keys off"):
            self.registry.key_reuse = what == "keys on"
        else:
            dead = self.engine.restart()
            for call in list(self.engine.held):
                call.fail()
            if what == "restart":
                self.registry.worker_died(dead)
                assert len(self.registry) == 0
        self._settle()

    # invariants

    @invariant()
    def budget_holds(self) -> None:
        active, waiting, permits = self._counts()
        assert min(active, waiting, permits) >= 0
        assert active <= self.lane.capacity
        assert active + waiting + permits <= self.lane.capacity + MAX_WAITING
        assert not (waiting and active < self.lane.capacity), "a seat is free while someone waits"

    @invariant()
    def no_unit_leaks(self) -> None:
        by_phase = {phase: sum(t.phase is phase for t in self.books.turns) for phase in Phase}
        expected = (by_phase[Phase.SEATED], by_phase[Phase.QUEUED], by_phase[Phase.RESERVED])
        assert self._counts() == expected

    @invariant()
    def each_session_has_one_holder(self) -> None:
        holders: list[ChatSession] = [t.lease.session for t in self.books.turns if t.lease and self._holds_lease(t)]
        assert len(holders) == len(set(holders)) == self.registry.leased
        for session in holders:
            assert not session.disposed
        released = {call.owner for call in self.engine.held if call.op == "release"}
        assert not released & {session.owner for session in holders}, "a leased session is being disposed"

    @invariant()
    def warm_sets_are_bounded(self) -> None:
        assert len(self.registry) <= self.warm_capacity

    @invariant()
    def each_tenant_is_served_in_order(self) -> None:
        for tenant in TENANTS:
            served = [turn.entered_serial for turn in self.books.seatings if turn.tenant == tenant]
            assert served == sorted(served)

    def teardown(self) -> None:
        try:
            if hasattr(self, "engine"):
                self._end_everything()
        finally:
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()

    def _end_everything(self) -> None:
        self.engine.hold = set()
        for turn in self.books.turns:
            if turn.phase is Phase.RESERVED and turn.permit is not None:
                turn.permit.release()
        for _ in range(200):
            for call in list(self.engine.held):
                call.succeed()
            self._settle()
            if all(turn.task is None or turn.task.done() for turn in self.books.turns):
                break
        self.registry.clear()
        self.loop.run_until_complete(self.registry.flush_disposals())
        assert self._counts() == (0, 0, 0)
        assert self.registry.leased == 0
        assert self.registry.pending_disposals == 0
        assert not self.engine.cells, "an owner was never released"

    # the turn

    def _enter(self, turn: Turn, permit: Permit | None) -> None:
        """A permit is charged in the call; the turn then runs as a task."""
        before = sum(self._counts())

        async def begin() -> None:
            seat = self.lane.enter(permit)
            turn.permit = permit
            self.books.serial += 1
            turn.entered_serial = self.books.serial
            turn.phase = Phase.SEATED if seat.seated else Phase.QUEUED
            turn.seat = seat
            turn.task = asyncio.get_running_loop().create_task(self._turn(turn, seat))

        expired = permit is not None and self.clock.now() >= permit.deadline
        self.loop.run_until_complete(begin())
        assert expired or sum(self._counts()) == before
        self._settle()

    async def _turn(self, turn: Turn, seat: Seat) -> None:
        """The order of a turn, as short as it can be."""
        try:
            async with seat:
                self.books.seatings.append(turn)
                await self._run(turn)
        except (Overloaded, EngineError, asyncio.CancelledError):
            pass
        finally:
            turn.phase = Phase.OVER

    async def _run(self, turn: Turn) -> None:
        lease = turn.lease = self.registry.lease(turn.query)
        self._check_lease(turn, lease)
        if not lease.hit:
            lease.session.prime(turn.query.history)
        try:
            try:
                await self.registry.flush_after_lease(lease)
                async with aclosing(lease.session.generate((1, 2, 3))) as events:
                    async for _ in events:
                        pass
                if not turn.commits:
                    raise EngineError("not committed")
            except BaseException:
                # give_back is short and must run whole: like the spine, it is not cancelled from outside.
                await self._unbroken(self.registry.give_back(lease))
                raise
            history = (*lease.session.history, Message(Role.ASSISTANT, (Text(turn.response_id),)))
            lease.session.commit(history, 4)
            dropped = lease.dropped
            adoption = self.registry.adopt(lease)
            assert not (dropped and adoption.warm), "resurrected after a delete"
            if adoption.warm and not turn.query.stateless:
                self.books.ids.append((turn.tenant, turn.response_id))
            if turn.accepted:
                adoption.keep()
            else:
                adoption.revoke()
        finally:
            await self._unbroken(self.registry.flush_before_leave(lease))

    async def _unbroken(self, work: object) -> None:
        task = asyncio.ensure_future(work)  # type: ignore[call-overload]
        while not task.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait((task,))
        with suppress(EngineError, SessionError):
            task.result()

    def _check_lease(self, turn: Turn, lease: Lease) -> None:
        assert lease.hit == (lease.reason is MissReason.HIT)
        previous = turn.query.previous_response_id
        if previous is not None and not turn.query.stateless and (turn.tenant, previous) not in self.books.ids:
            assert lease.reason is MissReason.UNKNOWN_ID, "a foreign tenant was told more"
        if not self.registry.paged:
            assert len(self.registry) == 0
        if lease.hit:
            assert lease.source is not None
            assert lease.source.domain == lease.domain
            assert lease.source.tenant == lease.tenant
            assert lease.source.instructions == lease.instructions
            assert lease.source.expires_at >= self.clock.now()
            assert lease.source.id not in self.books.dropped
            assert lease.session.owner is not None
            assert lease.session.owner.generation == self.engine.generation

    # helpers

    def _holds_lease(self, turn: Turn) -> bool:
        return turn.lease is not None and not turn.lease.settled

    def _counts(self) -> tuple[int, int, int]:
        return self.lane.active, self.lane.waiting, self.lane.permits

    def _room(self, tenant: str) -> bool:
        """The predicate again, from the machine's own books."""
        units = [t for t in self.books.turns if t.phase is not Phase.OVER]
        bound = self.lane.capacity + MAX_WAITING
        if len(units) >= bound:
            return False
        share = -(-3 * bound // 4)
        return self.lane.tenants < 2 or sum(t.tenant == tenant for t in units) < share

    @invariant()
    def no_turn_failed_in_a_way_of_its_own(self) -> None:
        for turn in self.books.turns:
            if turn.task is not None and turn.task.done() and not turn.task.cancelled():
                turn.task.result()

    def _in_phase(self, phase: Phase) -> list[Turn]:
        return [turn for turn in self.books.turns if turn.phase is phase]

    def _cancellable(self) -> list[Turn]:
        return [t for t in self.books.turns if t.task is not None and not t.task.done() and not t.cancelled]

    def _cancel(self, turn: Turn) -> None:
        assert turn.task is not None
        turn.cancelled = True
        turn.task.cancel()

    def _settle(self, ticks: int = 25) -> None:
        """Run the loop for so many ticks, by default until nothing moves."""

        async def breathe() -> None:
            for _ in range(ticks):
                await asyncio.sleep(0)

        self.loop.run_until_complete(breathe())
        for turn in self.books.turns:
            if turn.phase is Phase.QUEUED and turn.seat is not None and turn.seat.seated:
                turn.phase = Phase.SEATED
