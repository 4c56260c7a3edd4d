"""Turns that are ended from outside: by shutdown, and by the time a turn may take."""

from __future__ import annotations

import asyncio
import dataclasses

from support.clock import VirtualClock
from support.spine import read, rig
from warmlane.conversation.events import Failed, Started
from warmlane.errors import EngineFault, Unavailable
from warmlane.turns.spine import Spine
from warmlane.turns.stream import TurnStream


async def started(stream: TurnStream) -> None:
    async for event in stream:
        if isinstance(event, Started):
            return


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
        assert isinstance(last.error, EngineFault)
        assert "60 s" in last.error.message


async def test_the_limit_of_a_turn_that_ended_leaves_nothing_behind() -> None:
    clock = VirtualClock()
    async with rig(clock=clock) as warm:
        spine = Spine(dataclasses.replace(warm.spine._parts, turn_timeout_s=60.0))
        request = warm.ask("hello")
        await read(spine.start(request, spine.reserve("m", "")))
        await warm.idle()
        assert clock.pending == 0
