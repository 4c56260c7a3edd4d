"""Admission: each test is named after the rule it shows."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from support.clock import VirtualClock
from warmlane.errors import QueueFull, QueueTimeout, SessionError, Unavailable
from warmlane.sessions import Lane, Seat


def lane_of(
    capacity: int = 1, max_waiting: int | None = 4, *, tenants: int = 1, clock: VirtualClock | None = None
) -> Lane:
    return Lane(
        capacity=capacity,
        max_waiting=max_waiting,
        clock=clock or VirtualClock(),
        queue_timeout_s=300.0,
        tenants=tenants,
        name="m",
    )


def counts(lane: Lane) -> tuple[int, int, int]:
    return lane.active, lane.waiting, lane.permits


async def ticks(n: int = 5) -> None:
    for _ in range(n):
        await asyncio.sleep(0)


class Waiter:
    """A task that enters a seat and stays until it is told to leave."""

    def __init__(self, lane: Lane, name: str = "", *, tenant: str = "", order: list[str] | None = None) -> None:
        self.seat = lane.enter(lane.reserve(tenant))
        self.name = name
        self.order = order
        self.leave = asyncio.Event()
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async with self.seat:
            if self.order is not None:
                self.order.append(self.name)
            await self.leave.wait()

    async def go(self) -> None:
        self.leave.set()
        await self.task


async def test_every_request_is_exactly_one_unit() -> None:
    lane = lane_of()
    permit = lane.reserve()
    assert counts(lane) == (0, 0, 1)
    seat = lane.enter(permit)
    assert counts(lane) == (1, 0, 0)
    waiting = lane.enter(lane.reserve())
    assert counts(lane) == (1, 1, 0)
    async with seat:
        assert counts(lane) == (1, 1, 0)
    assert counts(lane) == (1, 0, 0)
    async with waiting:
        pass
    assert counts(lane) == (0, 0, 0)


@pytest.mark.parametrize(("capacity", "max_waiting"), [(1, 16), (4, 16), (1, 0), (3, 0)])
def test_a_burst_is_admitted_exactly_while_the_sum_is_below_the_bound(capacity: int, max_waiting: int) -> None:
    lane = lane_of(capacity, max_waiting)
    permits, refused = [], 0
    for _ in range(200):
        try:
            permits.append(lane.reserve())
        except QueueFull:
            refused += 1
    assert (len(permits), refused) == (capacity + max_waiting, 200 - capacity - max_waiting)
    assert lane.refusals("lane") == refused


async def test_one_predicate_judges_running_and_waiting_arrivals_alike() -> None:
    """An arrival that would run at once is refused too when permits hold the budget."""
    lane = lane_of(1, 0)
    permit = lane.reserve()
    with pytest.raises(QueueFull):
        lane.enter()
    permit.release()
    async with lane.enter():
        assert counts(lane) == (1, 0, 0)


def test_max_waiting_none_is_unbounded() -> None:
    lane = lane_of(1, None)
    permits = [lane.reserve() for _ in range(1000)]
    assert lane.permits == len(permits)
    assert lane.limit is None


def test_refusal_is_synchronous_names_the_numbers_and_changes_nothing() -> None:
    lane = lane_of(1, 2)
    seats = [lane.enter(), lane.enter()]
    permit = lane.reserve()
    with pytest.raises(QueueFull) as caught:
        lane.reserve()
    error = caught.value
    assert (error.waiting, error.permits, error.footprint, error.limit, error.scope) == (1, 1, 2, 2, "lane")
    assert "1 waiting + 1 permits = 2, limit 2" in str(error)
    assert counts(lane) == (1, 1, 1)
    assert len(seats) == 2
    permit.release()


async def test_a_permit_is_converted_without_a_second_check() -> None:
    lane = lane_of(1, 1)
    first, second = lane.reserve(), lane.reserve()
    async with lane.enter(first):
        waiting = lane.enter(second)
        assert counts(lane) == (1, 1, 0)
    async with waiting:
        assert counts(lane) == (1, 0, 0)


async def test_a_permit_ends_once() -> None:
    lane = lane_of()
    permit = lane.reserve()
    permit.release()
    permit.release()
    assert counts(lane) == (0, 0, 0)
    handed = lane.reserve()
    async with lane.enter(handed):
        handed.release()
        assert counts(lane) == (1, 0, 0)


def test_a_lost_permit_releases_itself() -> None:
    lane = lane_of()
    permit = lane.reserve()
    del permit
    assert counts(lane) == (0, 0, 0)


@pytest.mark.parametrize("kind", ["released", "handed off", "foreign"])
async def test_a_bad_permit_gives_no_credit(kind: str) -> None:
    lane, other = lane_of(1, 0), lane_of()
    permit = (other if kind == "foreign" else lane).reserve()
    if kind == "released":
        permit.release()
    elif kind == "handed off":
        async with lane.enter(permit):
            pass
    blocker = lane.reserve()
    with pytest.raises(QueueFull):
        lane.enter(permit)
    blocker.release()
    async with lane.enter(permit):
        assert counts(lane) == (1, 0, 0)
        assert other.permits == (kind == "foreign")
    permit.release()
    assert other.permits == 0


async def test_a_slot_never_entered_frees_its_unit() -> None:
    lane = lane_of()
    seated = lane.enter()
    waiting = Waiter(lane)
    assert counts(lane) == (1, 1, 0)
    del seated
    await ticks()
    assert waiting.seat.seated
    queued = lane.enter()
    assert counts(lane) == (1, 1, 0)
    del queued
    assert counts(lane) == (1, 0, 0)
    await waiting.go()


async def test_a_slot_is_entered_once() -> None:
    seat = lane_of().enter()
    async with seat:
        pass
    with pytest.raises(SessionError):
        async with seat:
            pass


async def test_no_arrival_overtakes_a_waiter_and_a_leaver_hands_over_in_the_same_call() -> None:
    lane = lane_of()
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(lane.enter())
        waiting = Waiter(lane)
        await stack.aclose()
        assert counts(lane) == (1, 0, 0)
        late = lane.enter()
        assert not late.seated
        assert waiting.seat.seated
        await waiting.go()
        assert late.seated
        async with late:
            pass
    assert counts(lane) == (0, 0, 0)


async def test_hand_over_to_a_waiter_cancelled_in_the_same_tick() -> None:
    lane = lane_of()
    holder, doomed, heir = Waiter(lane), Waiter(lane), Waiter(lane)
    await ticks()
    doomed.task.cancel()
    holder.leave.set()
    await ticks()
    assert heir.seat.seated
    assert counts(lane) == (1, 0, 0)
    await heir.go()
    assert counts(lane) == (0, 0, 0)


async def test_a_waiter_cancelled_after_being_seated_passes_the_seat_on() -> None:
    """The other order: seated first, cancelled before its body has run."""
    lane = lane_of()
    order: list[str] = []
    async with lane.enter():
        doomed, heir = Waiter(lane, "doomed", order=order), Waiter(lane, "heir", order=order)
        await ticks()
    assert doomed.seat.seated
    doomed.task.cancel()
    await ticks()
    assert order == ["heir"]
    assert doomed.task.cancelled()
    await heir.go()
    assert counts(lane) == (0, 0, 0)


async def test_a_waiter_that_times_out_by_its_caller_after_being_seated_passes_the_seat_on() -> None:
    lane = lane_of()
    holder = Waiter(lane)
    await ticks()

    async def hasty() -> None:
        async with asyncio.timeout(None) as scope:
            scopes.append(scope)
            async with lane.enter():
                raise AssertionError("the body must not run")

    scopes: list[asyncio.Timeout] = []
    task = asyncio.create_task(hasty())
    await ticks()
    heir = Waiter(lane)
    await ticks()
    scopes[0].reschedule(asyncio.get_running_loop().time() - 1)
    holder.leave.set()
    with pytest.raises(TimeoutError):
        await task
    await ticks()
    assert heir.seat.seated
    await heir.go()
    assert counts(lane) == (0, 0, 0)


async def test_a_cancelled_waiter_leaves_at_once_and_frees_its_unit() -> None:
    lane = lane_of()
    async with lane.enter():
        waiter = Waiter(lane)
        await ticks()
        assert counts(lane) == (1, 1, 0)
        waiter.task.cancel()
        await ticks()
        assert counts(lane) == (1, 0, 0)


async def test_the_deadline_runs_from_reserve_and_covers_the_wait() -> None:
    clock = VirtualClock()
    lane = lane_of(clock=clock)
    async with lane.enter():
        permit = lane.reserve()
        assert permit.deadline == clock.now() + 300
        clock.advance(200)
        seat = lane.enter(permit)
        task = asyncio.create_task(seat.__aenter__())
        await ticks()
        clock.advance(99)
        await ticks()
        assert not task.done()
        clock.advance(1)
        with pytest.raises(QueueTimeout):
            await task
        assert counts(lane) == (1, 0, 0)


async def test_a_permit_past_its_deadline_gets_no_seat() -> None:
    clock = VirtualClock()
    lane = lane_of(clock=clock)
    permit = lane.reserve()
    clock.advance(300)
    with pytest.raises(QueueTimeout):
        async with lane.enter(permit):
            pass
    assert counts(lane) == (0, 0, 0)


async def test_a_slot_entered_after_its_deadline_times_out() -> None:
    clock = VirtualClock()
    lane = lane_of(clock=clock)
    async with lane.enter():
        seat = lane.enter()
        clock.advance(301)
        with pytest.raises(QueueTimeout):
            await seat.__aenter__()
        assert counts(lane) == (1, 0, 0)


async def test_a_rebound_request_keeps_its_first_deadline() -> None:
    clock = VirtualClock()
    old, new = lane_of(clock=clock), lane_of(clock=clock)
    first = old.reserve()
    clock.advance(100)
    first.release()
    assert new.reserve(deadline=first.deadline).deadline == first.deadline


async def test_retry_after_is_honest() -> None:
    clock = VirtualClock()
    lane = lane_of(2, 8, clock=clock)
    assert lane.retry_after_s() == 1
    async with lane.enter():
        clock.advance(6)
    permits = [lane.reserve() for _ in range(5)]
    assert lane.retry_after_s() == 15
    async with lane.enter():
        clock.advance(600)
    assert lane.retry_after_s() == 60
    for permit in permits:
        permit.release()
    assert lane.retry_after_s() == 1


async def test_waited_s_counts_from_enter_to_seat() -> None:
    clock = VirtualClock()
    lane = lane_of(clock=clock)
    holder = Waiter(lane)
    waiter = Waiter(lane)
    await ticks()
    clock.advance(7)
    await holder.go()
    assert waiter.seat.waited_s == 7
    await waiter.go()


async def order_of(lane: Lane, arrivals: list[str], *, served_first: str) -> list[str]:
    """The order in which waiters get the one seat; an arrival's first letter is its tenant."""
    order: list[str] = []
    holder = Waiter(lane, served_first, tenant=served_first[0])
    waiters = [Waiter(lane, name, tenant=name[0], order=order) for name in arrivals]
    await holder.go()
    for _ in waiters:
        await ticks()
        current = next(w for w in waiters if w.name == order[-1])
        await current.go()
    return order


async def test_one_tenant_alone_sees_plain_fifo() -> None:
    arrivals = [f"a{n}" for n in range(6)]
    assert await order_of(lane_of(1, 16), arrivals, served_first="a") == arrivals


async def test_the_next_seat_goes_to_the_tenant_served_longest_ago() -> None:
    order = await order_of(lane_of(1, 16), ["a1", "a2", "a3", "b1", "b2", "c1"], served_first="a")
    assert order == ["b1", "c1", "a1", "b2", "a2", "a3"]


async def test_a_tie_in_active_seats_goes_to_the_tenant_served_longest_ago() -> None:
    lane = lane_of(3, 16)
    order: list[str] = []
    b = Waiter(lane, "b", tenant="b")
    a1, a2 = Waiter(lane, "a1", tenant="a"), Waiter(lane, "a2", tenant="a")
    waiting = [Waiter(lane, name, tenant=name[0], order=order) for name in ("a3", "b2")]
    await ticks()
    await a2.go()
    await ticks()
    assert order == ["b2"], "a and b hold one seat each, and b was served longest ago"
    for waiter in (b, a1, *waiting):
        await waiter.go()


async def test_the_next_seat_goes_to_the_tenant_with_the_fewest_active_seats() -> None:
    lane = lane_of(3, 16)
    order: list[str] = []
    a = [Waiter(lane, f"a{n}", tenant="a") for n in range(2)]
    b = Waiter(lane, "b0", tenant="b")
    waiting = [Waiter(lane, name, tenant=name[0], order=order) for name in ("a2", "b1")]
    await ticks()
    await b.go()
    await ticks()
    assert order == ["b1"], "b holds none, a two"
    for waiter in (*a, *waiting):
        await waiter.go()


def test_one_tenant_of_several_holds_at_most_three_quarters() -> None:
    lane = lane_of(4, 16, tenants=2)
    permits = [lane.reserve("a") for _ in range(15)]
    with pytest.raises(QueueFull) as caught:
        lane.reserve("a")
    assert caught.value.scope == "tenant"
    permits += [lane.reserve("b") for _ in range(5)]
    with pytest.raises(QueueFull) as caught:
        lane.reserve("b")
    assert caught.value.scope == "lane"
    assert (lane.refusals("tenant"), lane.refusals("lane")) == (1, 1)


def test_the_tenant_share_is_rounded_up() -> None:
    lane = lane_of(1, 4, tenants=2)
    permits = [lane.reserve("a") for _ in range(4)]
    with pytest.raises(QueueFull):
        lane.reserve("a")
    assert len(permits) == 4


def test_one_configured_tenant_has_the_whole_budget() -> None:
    lane = lane_of(1, 4, tenants=1)
    permits = [lane.reserve("a") for _ in range(5)]
    assert lane.permits == len(permits)


async def test_closing_ends_every_waiter_and_refuses_arrivals() -> None:
    lane = lane_of()
    async with lane.enter():
        waiter = Waiter(lane)
        permit = lane.reserve()
        await ticks()
        lane.close()
        with pytest.raises(Unavailable):
            await waiter.task
        with pytest.raises(Unavailable):
            lane.reserve()
        with pytest.raises(Unavailable):
            lane.enter(permit)
        assert counts(lane) == (1, 0, 0)
    assert counts(lane) == (0, 0, 0)


async def test_drained_waits_for_the_last_unit() -> None:
    lane = lane_of()
    permit = lane.reserve()
    task = asyncio.create_task(lane.drained())
    await ticks()
    assert not task.done()
    permit.release()
    await task
    await lane.drained()


def test_cold_permits_become_the_lanes_in_order_of_arrival_and_within_its_bound() -> None:
    cold, lane = lane_of(4, 4), lane_of(1, 4)
    permits = [cold.reserve(tenant) for tenant in "abcabc"]
    assert lane.take_over(cold) == 5
    assert (cold.permits, lane.permits) == (0, 5)
    assert [permit.held for permit in permits] == [True] * 5 + [False]
    seat = lane.enter(permits[0])
    assert seat.seated
    for permit in permits:
        permit.release()
    del seat
    assert counts(lane) == (0, 0, 0)


async def test_queue_timeouts_leave_no_unit_when_the_seat_is_never_given() -> None:
    clock = VirtualClock()
    lane = lane_of(1, None, clock=clock)
    async with lane.enter():
        tasks = [asyncio.create_task(seat.__aenter__()) for seat in [lane.enter() for _ in range(50)]]
        await ticks()
        clock.advance(300)
        results: list[Seat | BaseException] = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(result, QueueTimeout) for result in results)
        assert counts(lane) == (1, 0, 0)
