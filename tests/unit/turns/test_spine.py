"""Turns that are ended from outside: by shutdown, and by the time a turn may take."""

from __future__ import annotations

import asyncio
import dataclasses

from support.clock import VirtualClock
from support.spine import Rig, read, rig
from warmlane.conversation.events import Failed, Started
from warmlane.errors import QueueTimeout, TurnTimeout, Unavailable
from warmlane.turns.spine import Spine
from warmlane.turns.stream import TurnStream


async def started(stream: TurnStream) -> None:
    async for event in stream:
        if isinstance(event, Started):
            return


async def waiting(warm: Rig, n: int) -> None:
    while warm.lane.waiting < n:
        await asyncio.sleep(0)


async def test_a_turn_stopped_by_shutdown_can_be_tried_again_elsewhere() -> None:
    async with rig() as warm:
        stream = warm.start(warm.ask("SLOW:20 " + "x" * 60))
        await started(stream)
        warm.host.begin_drain()
        draining = asyncio.create_task(warm.host.drained(0.0))
        last = (await read(stream))[-1]
        await draining
        assert isinstance(last, Failed)
        assert isinstance(last.error, Unavailable)


async def test_a_turn_may_take_only_so_long() -> None:
    clock = VirtualClock()
    async with rig(clock=clock) as warm:
        spine = Spine(dataclasses.replace(warm.spine._parts, turn_timeout_s=60.0))
        request = warm.ask("SLOW:20 " + "x" * 60)
        stream = spine.start(request, spine.reserve("m", ""))
        await started(stream)
        clock.advance(60.0)
        last = (await read(stream))[-1]
        assert isinstance(last, Failed)
        assert isinstance(last.error, TurnTimeout)
        assert "60 s" in last.error.message


async def test_the_limit_of_a_turn_that_ended_leaves_nothing_behind() -> None:
    clock = VirtualClock()
    async with rig(clock=clock) as warm:
        spine = Spine(dataclasses.replace(warm.spine._parts, turn_timeout_s=60.0))
        request = warm.ask("hello")
        await read(spine.start(request, spine.reserve("m", "")))
        await warm.idle()
        assert clock.pending == 0


async def test_a_turn_that_waited_too_long_is_told_how_long_the_line_takes() -> None:
    clock = VirtualClock()
    async with rig(clock=clock, flat=True) as warm:
        slow = "SLOW:20 " + "x" * 60
        first = warm.start(warm.ask(slow))
        await started(first)
        clock.advance(10.0)
        await read(first)
        await warm.idle()
        running = warm.start(warm.ask(slow))
        await started(running)
        early = warm.start(warm.ask("early"))
        await waiting(warm, 1)
        clock.advance(100.0)
        late = [warm.start(warm.ask("late")) for _ in range(2)]
        await waiting(warm, 3)
        clock.advance(warm.lane.queue_timeout_s - 100.0)
        last = (await read(early))[-1]
        assert isinstance(last, Failed)
        assert isinstance(last.error, QueueTimeout)
        assert last.error.retry_after_s == 2 * 10
        for stream in (running, *late):
            stream.close()
