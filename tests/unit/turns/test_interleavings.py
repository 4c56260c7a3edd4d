"""The interleavings that break naive versions, over the whole spine."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from functools import partial

import pytest

from support.clock import VirtualClock
from support.holding import HoldingEngine, HoldingStore
from support.spine import Rig, read, rig, said, user
from warmlane.conversation.events import Failed, Finished, TextDelta, TurnEvent
from warmlane.conversation.messages import Message, Role, Text
from warmlane.conversation.turn import CacheOutcome, Dialect, TurnRequest
from warmlane.engine.client import WorkerEngine
from warmlane.errors import EngineFault, PreviousResponseNotFound, QueueTimeout, Unavailable
from warmlane.store import ResponseStore
from warmlane.turns.stream import TurnStream

ENDLESS = "SLOW:1000 " + "x" * 600
KINDS = pytest.mark.parametrize("flat", [False, True], ids=["paged", "flat"])


@pytest.fixture(params=["paged", "flat"])
async def spine(request: pytest.FixtureRequest) -> AsyncIterator[Rig]:
    async with rig(flat=request.param == "flat", capacity=2, start_engine=HoldingEngine.start) as made:
        yield made


class Stores:
    """Wraps the rig's store and keeps the wrapper."""

    def __init__(self) -> None:
        self.made: list[HoldingStore] = []

    def __call__(self, store: ResponseStore) -> ResponseStore:
        self.made.append(HoldingStore(store))
        return self.made[-1]


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0)


async def ticks(n: int) -> None:
    for _ in range(n):
        await asyncio.sleep(0)


async def speaking(stream: TurnStream) -> None:
    """Returns once the turn has said something."""
    async for event in stream:
        if isinstance(event, TextDelta):
            return


def text(events: list[TurnEvent]) -> str:
    assert isinstance(events[-1], Finished), events[-1]
    return events[-1].outcome.message.text


def counts(spine: Rig) -> tuple[int, int, int]:
    return spine.lane.active, spine.lane.waiting, spine.lane.permits


def warm(spine: Rig, request: TurnRequest) -> bool:
    return spine.registry.peek(request.response_id, tenant=request.tenant, domain=request.domain) is not None


async def occupied(spine: Rig) -> list[TurnStream]:
    """Endless turns on every seat."""
    streams = [spine.start(spine.ask(ENDLESS)) for _ in range(spine.lane.capacity)]
    await until(lambda: spine.lane.active == spine.lane.capacity)
    return streams


# the lane


@pytest.mark.parametrize("waiter_first", [False, True])
@pytest.mark.parametrize("apart", range(6))
async def test_hand_over_to_a_waiter_cancelled_in_the_same_tick(spine: Rig, apart: int, waiter_first: bool) -> None:
    running = await occupied(spine)
    waiters = [spine.start(spine.ask(f"late {n}")) for n in range(2)]
    await until(lambda: spine.lane.waiting == 2)
    first, second = (waiters[0], running[0]) if waiter_first else (running[0], waiters[0])
    first.close()
    await ticks(apart)
    second.close()
    assert text(await read(waiters[1])) == "echo: late 1"
    for stream in running:
        stream.close()
    await spine.idle()
    assert counts(spine) == (0, 0, 0)
    assert spine.registry.leased == 0


async def test_a_slot_never_entered_frees_its_unit(spine: Rig) -> None:
    permit = spine.spine.reserve("m", "")
    assert counts(spine) == (0, 0, 1)
    del permit
    assert counts(spine) == (0, 0, 0)
    kept = spine.ask("hello")
    await spine.finished(kept)
    stream = spine.start(spine.ask("never"))
    stream.close()
    await spine.idle()
    assert counts(spine) == (0, 0, 0)
    assert warm(spine, kept)


@KINDS
async def test_the_queue_deadline_runs_from_reserve_and_leases_nothing(flat: bool) -> None:
    clock = VirtualClock()
    async with rig(flat=flat, capacity=2, clock=clock, start_engine=HoldingEngine.start) as spine:
        running = await occupied(spine)
        permit = spine.spine.reserve("m", "")
        clock.advance(299)
        late = spine.spine.start(spine.ask("late"), permit)
        await until(lambda: spine.lane.waiting)
        before = spine.registry.hits, spine.registry.misses.total(), spine.registry.evictions
        clock.advance(1)
        events = await read(late)
        assert isinstance(events[-1], Failed)
        assert isinstance(events[-1].error, QueueTimeout)
        assert spine.lane.waiting == 0
        assert (spine.registry.hits, spine.registry.misses.total(), spine.registry.evictions) == before
        for stream in running:
            stream.close()
        await spine.idle()
        assert counts(spine) == (0, 0, 0)


# between the commit and the terminal event


@KINDS
async def test_a_disconnect_between_commit_and_terminal_keeps_the_row_and_drops_the_entry(flat: bool) -> None:
    stores = Stores()
    async with rig(flat=flat, wrap_store=stores) as spine:
        (store,) = stores.made
        store.saving.shut()
        request = spine.ask("hello")
        stream = spine.start(request)
        await store.saving.arrived.wait()
        stream.close()
        await ticks(5)
        assert spine.lane.active == 1
        store.saving.open()
        await spine.idle()
        assert counts(spine) == (0, 0, 0)
        assert not warm(spine, request)
        assert spine.registry.pending_disposals == 0
        outcome = await spine.finished(spine.ask("more", previous_response_id=request.response_id))
        assert (outcome.message.text, outcome.cache.reason) == ("echo: more", "evicted")


@KINDS
@pytest.mark.parametrize("when", ["running", "saving", "told"])
async def test_a_delete_before_the_turn_has_settled_is_not_undone_by_its_adoption(flat: bool, when: str) -> None:
    stores = Stores()
    async with rig(flat=flat, wrap_store=stores) as spine:
        (store,) = stores.made
        if when == "saving":
            store.saving.shut()
        request = spine.ask("SLOW:2 hello")
        stream = spine.start(request)
        if when == "running":
            await speaking(stream)
        elif when == "saving":
            await store.saving.arrived.wait()
        else:
            async for event in stream:
                if isinstance(event, Finished):
                    break
        assert spine.registry.drop(request.response_id, tenant="")
        store.saving.open()
        if when != "told":
            await read(stream, accept=False)
        stream.accept()
        stream.close()
        await spine.idle()
        await spine.registry.flush_disposals()
        assert not warm(spine, request)
        assert len(spine.registry) == 0
        outcome = await spine.finished(spine.ask("more", previous_response_id=request.response_id))
        assert (outcome.message.text, outcome.cache.reason) == ("echo: more", "deleted")


@KINDS
async def test_a_delete_of_the_id_a_turn_is_leased_from_disposes_at_its_end(flat: bool) -> None:
    async with rig(flat=flat, start_engine=HoldingEngine.start) as spine:
        first = spine.ask("hello")
        await spine.finished(first)
        second = spine.ask("SLOW:2 more", previous_response_id=first.response_id)
        stream = spine.start(second)
        await speaking(stream)
        assert spine.registry.drop(first.response_id, tenant="")
        assert text(await read(stream)).startswith("echo: ")
        await spine.idle()
        assert not warm(spine, first)
        assert not warm(spine, second)
        assert spine.registry.pending_disposals == 0


@KINDS
async def test_worker_death_after_commit_answers_and_stores_and_leaves_nothing_warm(flat: bool) -> None:
    async def at_once(_: float) -> None: ...

    stores = Stores()
    start = partial(WorkerEngine.start, sleep=at_once)
    async with rig(flat=flat, wrap_store=stores, start_engine=start) as spine:
        (store,) = stores.made
        store.saving.shut()
        request = spine.ask("hello")
        reading = asyncio.create_task(read(spine.start(request)))
        await store.saving.arrived.wait()
        engine = spine.binding.engine
        assert isinstance(engine, WorkerEngine)
        assert engine.worker_pid is not None
        os.kill(engine.worker_pid, signal.SIGKILL)
        await until(lambda: engine.generation == 2)
        store.saving.open()
        assert text(await reading) == "echo: hello"
        await spine.idle()
        assert counts(spine) == (0, 0, 0)
        assert not warm(spine, request)
        assert spine.registry.pending_disposals == 0
        await engine.wait_ready()
        outcome = await spine.finished(spine.ask("more", previous_response_id=request.response_id))
        assert (outcome.message.text, outcome.cache.reason) == ("echo: more", "engine_restarted")


@KINDS
@pytest.mark.parametrize("failure", [Unavailable("The store is full."), RuntimeError("a bug")], ids=["store", "bug"])
async def test_a_row_that_cannot_be_saved_ends_the_lease_and_tells_the_client(flat: bool, failure: Exception) -> None:
    stores = Stores()
    async with rig(flat=flat, wrap_store=stores) as spine:
        stores.made[0].failure = failure
        error = await spine.failed(spine.ask("hello"))
        assert isinstance(error, Unavailable if isinstance(failure, Unavailable) else EngineFault)
        assert counts(spine) == (0, 0, 0)
        assert (len(spine.registry), spine.registry.leased, spine.registry.pending_disposals) == (0, 0, 0)
        stores.made[0].failure = None
        await spine.finished(spine.ask("hello"))


# releases


@KINDS
async def test_a_release_that_hangs_holds_a_seat_no_longer_than_the_disposal_timeout(flat: bool) -> None:
    clock = VirtualClock()
    async with rig(flat=flat, capacity=2, clock=clock, start_engine=HoldingEngine.start) as spine:
        engine = spine.binding.engine
        assert isinstance(engine, HoldingEngine)
        engine.releasing.shut()
        gone = spine.start(spine.ask(ENDLESS))
        await speaking(gone)
        gone.close()
        await engine.releasing.arrived.wait()
        assert spine.lane.active == 1
        clock.advance(5)
        await spine.idle()
        assert (*counts(spine), spine.registry.pending_disposals) == (0, 0, 0, 1)
        reading = asyncio.create_task(read(spine.start(spine.ask("hello"))))
        while flat and not reading.done():  # the exclusive lane waits for every release, twice a turn
            await ticks(1)
            clock.advance(5)
        assert text(await reading) == "echo: hello"
        engine.releasing.open()
        await spine.registry.flush_disposals()
        await spine.idle()
        assert (*counts(spine), spine.registry.pending_disposals) == (0, 0, 0, 0)


# who may have what


async def test_the_same_id_from_another_tenant_is_unknown_in_every_state(spine: Rig) -> None:
    mine = spine.ask("hello", tenant="a")
    await spine.finished(mine)
    unknown = str(PreviousResponseNotFound(mine.response_id))
    theirs = [spine.ask("x", tenant="b", previous_response_id=mine.response_id) for _ in range(3)]
    assert str(await spine.failed(theirs[0])) == unknown
    running = spine.start(spine.ask(ENDLESS, tenant="a", previous_response_id=mine.response_id))
    await speaking(running)
    assert str((await read(spine.start(theirs[1])))[-1]) == str(Failed(PreviousResponseNotFound(mine.response_id)))
    running.close()
    await spine.idle()
    assert warm(spine, mine)
    spine.registry.drop(mine.response_id, tenant="a")
    assert str(await spine.failed(theirs[2])) == unknown


async def test_a_cache_key_shared_by_a_main_agent_and_its_helpers(spine: Rig) -> None:
    """The main agent keeps its session on a paged engine, whatever its helpers ask in between."""
    keyed = {"dialect": Dialect.CHAT, "store": False, "prompt_cache_key": "the agent's key"}
    main: tuple[Message, ...] = (Message(Role.SYSTEM, (Text("You are the main agent."),)), user("plan"))
    for turn in range(4):
        outcome = await spine.finished(spine.ask(main, **keyed))
        assert outcome.message.text == f"echo: {main[-1].text}"
        if turn and spine.paged:
            assert outcome.cache.outcome is CacheOutcome.HIT
        main = (*main, said(outcome.message.text), user(f"go on {turn}"))
        helper = (Message(Role.SYSTEM, (Text(f"You are helper {turn}."),)), user("plan"))
        helped = await spine.finished(spine.ask(helper, **keyed))
        assert helped.cache.outcome is not CacheOutcome.HIT
        assert helped.message.text == "echo: plan"


# chaining


@pytest.mark.parametrize("n", [2, 4])
async def test_requests_chained_to_one_id_at_the_same_instant_all_answer_and_one_leases(spine: Rig, n: int) -> None:
    for _ in range(10):
        first = spine.ask("hello")
        await spine.finished(first)
        both = [spine.ask(f"more {i}", previous_response_id=first.response_id) for i in range(n)]
        ends = await asyncio.gather(*(read(spine.start(request)) for request in both))
        assert [text(events) for events in ends] == [f"echo: more {i}" for i in range(n)]
        outcomes = [events[-1].outcome for events in ends if isinstance(events[-1], Finished)]
        assert sum(outcome.cache.outcome is CacheOutcome.HIT for outcome in outcomes) == 1
        await spine.idle()
        assert counts(spine) == (0, 0, 0)


async def test_500_rounds_of_chaining_at_the_terminal_event_all_hit(spine: Rig) -> None:
    """The next turn starts in the tick in which the terminal event is read, before that is even accepted."""
    for _ in range(25):
        stream = spine.start(request := spine.ask("EMIT:k"))
        for turn in range(21):
            async for event in stream:
                if isinstance(event, Finished):
                    break
            assert isinstance(event, Finished), event
            assert (event.outcome.cache.outcome is CacheOutcome.HIT) == (turn > 0), event.outcome.cache
            following = spine.start(request := spine.ask("EMIT:k", previous_response_id=request.response_id))
            stream.accept()
            stream.close()
            stream = following
        stream.close()
        await spine.idle()
    assert spine.registry.hits == 500
