"""Models that come and go while turns wait for them."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from support.clock import VirtualClock
from support.spine import read, rig
from warmlane.conversation.events import Failed, Finished, Loading, TextDelta, Validated
from warmlane.conversation.turn import CacheOutcome
from warmlane.errors import ConfigError, ModelNotFound, QueueFull, Unavailable
from warmlane.host import Binding, ModelGate, ModelHost
from warmlane.sessions import Lane
from warmlane.turns.stream import TurnStream


async def speaking(stream: TurnStream) -> None:
    """Returns once the turn has said something."""
    async for event in stream:
        if isinstance(event, TextDelta):
            return


async def until(condition: object) -> None:
    assert callable(condition)
    while not condition():
        await asyncio.sleep(0)


async def test_an_unknown_name_is_refused_before_any_permit() -> None:
    async with rig(resident=False) as cold:
        with pytest.raises(ModelNotFound):
            cold.spine.reserve("other", "")
        assert cold.loads == []


async def test_arrivals_for_a_cold_model_load_it_once_and_are_all_answered() -> None:
    async with rig(resident=False) as cold:
        requests = [cold.ask(f"hello {i}") for i in range(8)]
        streams = [cold.start(r) for r in requests]
        ends = await asyncio.gather(*(read(s) for s in streams))
        texts = [e[-1].outcome.message.text for e in ends if isinstance(e[-1], Finished)]
        assert texts == [f"echo: hello {i}" for i in range(8)]
        assert len(cold.loads) == 1
        await cold.idle()
        assert (cold.lane.active, cold.lane.waiting, cold.lane.permits) == (0, 0, 0)


async def test_a_cold_model_has_the_same_bound() -> None:
    async with rig(resident=False, capacity=2, max_waiting=1) as cold:
        permits = [cold.spine.reserve("m", "") for _ in range(3)]
        with pytest.raises(QueueFull):
            cold.spine.reserve("m", "")
        await cold.host.load("m")
        assert cold.lane.permits == 3
        with pytest.raises(QueueFull):
            cold.spine.reserve("m", "")
        for permit in permits:
            permit.release()
        assert cold.lane.permits == 0


async def test_a_failed_load_ends_each_with_unavailable_and_the_next_arrival_tries_again() -> None:
    tries: list[int] = []

    async def loader(gate: ModelGate) -> Binding:
        tries.append(1)
        raise ConfigError("The model file is gone.")

    async with rig() as warm:
        warm.host.add("n", loader=loader, cold=Lane(capacity=2, max_waiting=2, clock=warm.spine._parts.clock))
        requests = [warm.ask("x", model="n") for _ in range(3)]
        for error in [await warm.failed(r) for r in requests]:
            assert isinstance(error, Unavailable)
            assert "The model file is gone." in error.message
        assert len(tries) == 3


async def test_an_unload_wakes_waiters_at_once_and_they_are_answered_by_the_next_model() -> None:
    async with rig(capacity=2, max_waiting=4) as warm:
        running = [warm.start(warm.ask("SLOW:20 " + "x" * 60)) for _ in range(2)]
        for stream in running:
            await speaking(stream)
        waiting = [warm.start(warm.ask(f"late {i}")) for i in range(2)]
        await until(lambda: warm.lane.waiting == 2)
        old = warm.lane
        unloading = asyncio.create_task(warm.host.unload("m"))
        await until(lambda: old.waiting == 0)
        assert old.active == 2
        for stream in running:
            stream.close()
        await unloading
        ends = await asyncio.gather(*(read(s) for s in waiting))
        assert [e[-1].outcome.message.text for e in ends if isinstance(e[-1], Finished)] == [
            "echo: late 0",
            "echo: late 1",
        ]
        assert len(warm.loads) == 2


@pytest.mark.parametrize("ticks", range(4))
async def test_a_turn_that_is_being_prepared_survives_an_unload(ticks: int) -> None:
    async with rig() as warm:
        stream = warm.start(warm.ask("hello"))
        for _ in range(ticks):
            await asyncio.sleep(0)
        unloading = asyncio.create_task(warm.host.unload("m"))
        events = await read(stream)
        await unloading
        assert isinstance(events[-1], Finished)
        assert [type(e) for e in events].count(Validated) == 1


async def test_a_load_that_wants_the_writer_comes_before_turns_that_wait() -> None:
    async with rig(capacity=2, max_waiting=4) as warm:
        running = warm.start(warm.ask("SLOW:20 " + "x" * 60))
        await speaking(running)
        unloading = asyncio.create_task(warm.host.unload("m"))
        await until(lambda: warm.loads[0].gate.writer_waits)
        late = warm.start(warm.ask("late"))
        assert len(warm.loads) == 1
        running.close()
        events = await read(late)
        await unloading
        assert isinstance(events[-1], Finished)
        assert len(warm.loads) == 2


async def test_a_running_turn_ends_on_the_model_it_began_on() -> None:
    async with rig() as warm:
        stream = warm.start(warm.ask("SLOW:2 hello"))
        await speaking(stream)
        unloading = asyncio.create_task(warm.host.unload("m"))
        events = await read(stream)
        await unloading
        assert isinstance(events[-1], Finished)
        assert events[-1].outcome.message.text.startswith("echo: ")


async def test_a_chain_survives_the_model_going_and_coming() -> None:
    async with rig() as warm:
        first = warm.ask("hello")
        await warm.finished(first)
        await warm.host.unload("m")
        outcome = await warm.finished(warm.ask("more", previous_response_id=first.response_id))
        assert outcome.message.text == "echo: more"
        assert outcome.cache.outcome is not CacheOutcome.HIT


async def test_a_drain_ends_those_who_wait_for_a_load() -> None:
    loading = asyncio.Event()

    async def loader(gate: ModelGate) -> Binding:
        loading.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with rig() as warm:
        warm.host.add("n", loader=loader, cold=Lane(capacity=2, max_waiting=2, clock=warm.spine._parts.clock))
        stream = warm.start(warm.ask("x", model="n"))
        await loading.wait()
        warm.host.begin_drain()
        events = await read(stream)
        assert isinstance(events[-1], Failed)
        assert isinstance(events[-1].error, Unavailable)


async def test_a_load_past_its_time_is_unavailable() -> None:
    async def loader(gate: ModelGate) -> Binding:
        await asyncio.Event().wait()
        raise AssertionError

    host = ModelHost(load_timeout_s=0.0)
    async with rig() as warm:
        host.add("n", loader=loader, cold=Lane(capacity=2, max_waiting=2, clock=warm.spine._parts.clock))
        with pytest.raises(Unavailable, match="longer than"):
            await host.load("n")


async def test_a_chain_goes_on_with_another_model_from_its_text() -> None:
    async with rig() as warm:
        load = warm.host._slots["m"].loader
        assert load is not None

        async def loader(gate: ModelGate) -> Binding:
            return dataclasses.replace(await load(gate), name="n")

        warm.host.add("n", loader=loader, cold=Lane(capacity=2, max_waiting=2, clock=warm.spine._parts.clock))
        for store in (True, False):
            first = warm.ask("hello", store=store)
            await warm.finished(first)
            chained = warm.ask("more", model="n", previous_response_id=first.response_id)
            outcome = await warm.finished(chained)
            assert outcome.cache.reason == "model_changed"
            assert outcome.message.text == "echo: more"


@pytest.mark.parametrize(("seconds", "told"), [(0.4, False), (0.6, True)])
async def test_a_client_that_waits_for_a_load_is_told_so_if_it_takes_a_while(seconds: float, told: bool) -> None:
    clock, loading, go = VirtualClock(), asyncio.Event(), asyncio.Event()
    async with rig(clock=clock) as warm:
        load = warm.host._slots["m"].loader
        assert load is not None

        async def loader(gate: ModelGate) -> Binding:
            loading.set()
            await go.wait()
            return dataclasses.replace(await load(gate), name="n")

        warm.host.add("n", loader=loader, cold=Lane(capacity=2, max_waiting=2, clock=clock))
        stream = warm.start(warm.ask("hello", model="n"))
        await loading.wait()
        clock.advance(seconds)
        go.set()
        events = await read(stream)
        assert isinstance(events[-1], Finished)
        assert [type(e) for e in events if isinstance(e, Loading | Validated)] == [Loading] * told + [Validated]
