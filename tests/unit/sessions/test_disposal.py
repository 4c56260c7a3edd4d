"""Releasing owners: started at once, never doubled, owed when it fails, waited for with a bound."""

from __future__ import annotations

import asyncio

import pytest

from support.turns import Desk, ticks
from warmlane.errors import EngineFault, SessionBusy, SessionError


def releases(desk: Desk) -> int:
    return sum(op == "release" for op, _ in desk.engine.log)


async def warm(desk: Desk, *names: str) -> None:
    for name in names:
        await desk.turn(desk.query(name))


async def test_every_eviction_is_counted_at_once_and_starts_a_disposal() -> None:
    desk = Desk()
    await warm(desk, "a", "b")
    desk.registry.clear()
    assert desk.registry.pending_disposals == 2
    assert releases(desk) == 0
    await ticks()
    assert releases(desk) == 2
    assert desk.registry.pending_disposals == 0
    assert desk.engine.cells == {}


async def test_a_failed_background_disposal_is_swallowed_and_stays_owed() -> None:
    desk = Desk()
    await warm(desk, "a")
    desk.engine.failing = {"release"}
    desk.registry.clear()
    await ticks()
    assert (desk.registry.pending_disposals, desk.registry.owed_disposals) == (1, 1)
    desk.engine.failing = set()
    await desk.registry.flush_disposals()
    assert desk.registry.pending_disposals == 0
    assert releases(desk) == 2


async def test_flush_retries_each_owed_session_once_and_leaves_what_fails_again() -> None:
    desk = Desk()
    await warm(desk, "a", "b")
    desk.engine.failing = {"release"}
    desk.registry.clear()
    await ticks()
    await desk.registry.flush_disposals()
    assert releases(desk) == 4
    assert desk.registry.owed_disposals == 2


async def test_flush_retries_what_fails_while_it_waits_even_while_another_hangs() -> None:
    desk = Desk()
    await warm(desk, "a", "b")
    desk.engine.hold = {"release"}
    desk.registry.clear()
    flush = asyncio.create_task(desk.registry.flush_disposals())
    await ticks()
    failing, hanging = desk.engine.held
    failing.fail()
    await ticks()
    assert releases(desk) == 3
    assert hanging in desk.engine.held
    desk.engine.held[-1].succeed()
    await ticks()
    assert not flush.done()
    hanging.succeed()
    await flush
    assert desk.registry.pending_disposals == 0


async def test_a_disposal_in_flight_is_awaited_and_never_doubled() -> None:
    desk = Desk()
    await warm(desk, "a")
    desk.engine.hold = {"release"}
    desk.registry.clear()
    await ticks()
    flushes = [asyncio.create_task(desk.registry.flush_disposals()) for _ in range(3)]
    desk.registry.sweep()
    await ticks()
    assert releases(desk) == 1
    assert desk.registry.pending_disposals == 1
    desk.engine.held[0].succeed()
    await asyncio.gather(*flushes)
    assert releases(desk) == 1


async def test_sweep_retries_owed_disposals_on_the_paged_lane() -> None:
    desk = Desk()
    await warm(desk, "a")
    desk.engine.failing = {"release"}
    desk.registry.clear()
    await ticks()
    desk.engine.failing = set()
    desk.registry.sweep()
    await ticks()
    assert desk.registry.pending_disposals == 0


@pytest.mark.parametrize("capacity", [1, 4], ids=["flat", "paged"])
async def test_a_release_that_hangs_holds_a_turn_no_longer_than_the_timeout(capacity: int) -> None:
    desk = Desk(capacity=capacity, warm_capacity=1)
    await warm(desk, "a")
    desk.engine.hold = {"release"}
    turn = asyncio.create_task(desk.turn(desk.query("b")))
    await ticks(20)
    assert not turn.done()
    for _ in range(4):
        desk.clock.advance(5)
        await ticks(20)
    assert turn.done()
    assert desk.registry.pending_disposals == 1
    assert len(desk.registry) == 1
    desk.engine.hold = set()
    desk.engine.held[0].succeed()
    await ticks()
    assert desk.registry.pending_disposals == 0


async def test_on_the_exclusive_lane_a_turn_waits_for_all_disposals() -> None:
    desk = Desk(capacity=1)
    await warm(desk, "a")
    desk.engine.hold = {"release"}
    desk.registry.clear()
    lease = desk.registry.lease(desk.query("b"))
    assert lease.started == []
    flush = asyncio.create_task(desk.registry.flush_after_lease(lease))
    await ticks()
    assert not flush.done()
    desk.engine.held[0].succeed()
    await flush


async def test_on_the_batched_lane_a_turn_waits_for_its_own_disposals_alone() -> None:
    desk = Desk()
    await desk.turn(desk.query("a"))
    await desk.turn(desk.query("b"), retention_s=1)
    desk.engine.hold = {"release"}
    desk.registry.drop("a", tenant="ann")
    lease = desk.registry.lease(desk.query("c"))
    await desk.registry.flush_after_lease(lease)
    assert desk.registry.pending_disposals == 1
    desk.clock.advance(2)
    own = desk.registry.lease(desk.query("d", previous="b"))
    flush = asyncio.create_task(desk.registry.flush_after_lease(own))
    await ticks()
    assert not flush.done()
    next(call for call in desk.engine.held if call.owner != desk.engine.log[0][1]).succeed()
    await flush
    assert desk.registry.pending_disposals == 1


async def test_flush_before_leaving_waits_for_what_the_adoption_evicted() -> None:
    desk = Desk(warm_capacity=1)
    await warm(desk, "a")
    lease = desk.registry.lease(desk.query("b"))
    await desk.run(lease)
    desk.engine.hold = {"release"}
    desk.registry.adopt(lease).keep()
    flush = asyncio.create_task(desk.registry.flush_before_leave(lease))
    await ticks()
    assert not flush.done()
    desk.engine.held[0].succeed()
    await flush


async def test_a_leased_session_is_never_disposed_by_the_registry() -> None:
    desk = Desk()
    await warm(desk, "a")
    lease = desk.registry.lease(desk.query("b", previous="a"))
    desk.registry.clear()
    desk.registry.sweep()
    desk.registry.drop("a", tenant="ann")
    await desk.registry.flush_disposals()
    assert not lease.session.disposed
    assert releases(desk) == 0


async def test_the_holder_disposes_hears_of_failure_and_keeps_it_owed() -> None:
    desk = Desk()
    lease = desk.registry.lease(desk.query("a"))
    await desk.run(lease)
    desk.engine.failing = {"release"}
    with pytest.raises(EngineFault):
        await desk.registry.dispose(lease.session)
    assert (desk.registry.owed_disposals, desk.registry.leased) == (1, 0)
    desk.engine.failing = set()
    await desk.registry.dispose(lease.session)
    assert desk.registry.pending_disposals == 0
    await desk.registry.dispose(lease.session)


async def test_the_holder_waits_no_longer_than_the_timeout() -> None:
    desk = Desk()
    lease = desk.registry.lease(desk.query("a"))
    await desk.run(lease)
    desk.engine.hold = {"release"}
    task = asyncio.create_task(desk.registry.dispose(lease.session))
    await ticks()
    desk.clock.advance(5)
    with pytest.raises(EngineFault, match="5 s"):
        await task
    assert desk.registry.pending_disposals == 1
    desk.engine.held[0].succeed()
    await ticks()
    assert desk.registry.pending_disposals == 0


async def test_only_the_holder_of_an_idle_session_disposes_it() -> None:
    desk = Desk()
    lease, _ = await desk.turn(desk.query("a"))
    with pytest.raises(SessionError, match="holder"):
        await desk.registry.dispose(lease.session)
    again = desk.registry.lease(desk.query("b", previous="a"))
    events = again.session.generate((1,))
    await anext(events)
    with pytest.raises(SessionBusy):
        await desk.registry.dispose(again.session)
    await events.aclose()


async def test_abandon_ends_a_lease_and_disposes_in_the_background() -> None:
    desk = Desk()
    lease = desk.registry.lease(desk.query("a"))
    await desk.run(lease)
    await desk.registry.abandon(lease)
    await desk.registry.flush_before_leave(lease)
    assert lease.session.disposed
    assert desk.registry.leased == 0


async def test_worker_death_discharges_owed_and_hanging_disposals() -> None:
    desk = Desk()
    await warm(desk, "a", "b")
    desk.engine.failing = {"release"}
    desk.registry.drop("a", tenant="ann")
    await ticks()
    desk.engine.failing, desk.engine.hold = set(), {"release"}
    desk.registry.drop("b", tenant="ann")
    await ticks()
    assert desk.registry.pending_disposals == 2
    desk.registry.worker_died(desk.engine.restart())
    assert desk.registry.pending_disposals == 0
    await ticks()
    assert desk.registry.pending_disposals == 0
    await desk.registry.flush_disposals()


async def test_a_disposal_that_fails_after_its_worker_died_is_not_owed() -> None:
    desk = Desk()
    await warm(desk, "a")
    desk.engine.hold = {"release"}
    desk.registry.clear()
    await ticks()
    call = desk.engine.held[0]
    desk.registry.worker_died(desk.engine.restart())
    call.fail()
    await ticks()
    assert desk.registry.pending_disposals == 0


async def test_a_truncation_that_hangs_holds_the_seat_no_longer_than_the_timeout() -> None:
    desk = Desk()
    await warm(desk, "a")
    lease = desk.registry.lease(desk.query("b", previous="a"))
    events = lease.session.generate((1,))
    await anext(events)
    await events.aclose()
    desk.engine.hold = {"truncate"}
    task = asyncio.create_task(desk.registry.give_back(lease))
    await ticks()
    assert not task.done()
    desk.clock.advance(5)
    assert not await task
    await desk.registry.flush_disposals()
    assert lease.session.disposed


async def test_a_holder_cancelled_while_it_gives_back_leaks_nothing() -> None:
    desk = Desk()
    await warm(desk, "a")
    lease = desk.registry.lease(desk.query("b", previous="a"))
    events = lease.session.generate((1,))
    await anext(events)
    await events.aclose()
    desk.engine.hold = {"truncate"}
    task = asyncio.create_task(desk.registry.give_back(lease))
    await ticks()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert desk.registry.leased == 0
    await desk.registry.flush_disposals()
    assert lease.session.disposed
    assert desk.registry.pending_disposals == 0


def test_an_eviction_outside_an_event_loop_is_owed() -> None:
    desk = Desk()
    asyncio.run(warm(desk, "a"))
    desk.registry.clear()
    assert desk.registry.owed_disposals == 1
    asyncio.run(desk.registry.flush_disposals())
    assert desk.registry.pending_disposals == 0
