"""A turn disturbed at each point where it gives way: whatever comes of it, nothing is left behind."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

import pytest

from support.holding import HoldingEngine
from support.probe import ProbedTasks
from support.spine import Rig, read, rig
from warmlane.conversation.turn import CacheOutcome, TurnRequest
from warmlane.turns.stream import TurnStream

BLOCKER = "SLOW:50 " + "x" * 200


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await asyncio.sleep(0)


class Case:
    """One turn, continuing a warm one unless `fresh`, and a client that reads it. `queued`: it has to wait first;
    `choices`: it makes several replies."""

    def __init__(self, spine: Rig, tasks: ProbedTasks, *, state: str) -> None:
        self.spine = spine
        self.tasks = tasks
        self.state = state
        self.dropped = False
        self.side: list[asyncio.Task[None]] = []

    async def run(self, what: str, at: int) -> None:
        self.first = self.spine.ask("hello")
        await self.spine.finished(self.first)
        blockers = await self._blockers() if self.state == "queued" else []
        previous = None if self.state == "fresh" else self.first.response_id
        n_choices = 3 if self.state == "choices" else 1
        self.request = self.spine.ask("SLOW:1\nEMIT:hi", previous_response_id=previous, n_choices=n_choices)
        self.tasks.disturb_next(at, lambda: self._disturb(what))
        self.stream = self.spine.start(self.request)
        self.reading = asyncio.create_task(read(self.stream))
        if blockers:
            await until(lambda: self.spine.lane.waiting or self.tasks.reached)
        for blocker in blockers:
            blocker.close()
        await self.spine.idle()
        self.reading.cancel()
        await asyncio.gather(self.reading, *self.side, return_exceptions=True)
        await self.spine.idle()
        if self.dropped:
            await self.spine.registry.flush_disposals()  # of the delete's own, which no turn waits for

    async def _blockers(self) -> list[TurnStream]:
        lane = self.spine.lane
        streams = [self.spine.start(self.spine.ask(BLOCKER)) for _ in range(lane.capacity)]
        await until(lambda: lane.active == lane.capacity)
        return streams

    def _disturb(self, what: str) -> None:
        registry = self.spine.registry
        if what == "leave":
            self.stream.close()
            self.reading.cancel()
        elif what == "drop own":
            self.dropped = registry.drop(self.request.response_id, tenant="")
        elif what == "drop previous":
            self.dropped = registry.drop(self.first.response_id, tenant="")
        else:
            self.side.append(asyncio.create_task(self.spine.host.unload("m")))

    async def stored(self, request: TurnRequest) -> bool:
        row = await self.spine.store.get(request.response_id, "", now=0.0)
        assert row is None or row.output.text == "hi"
        return row is not None

    def warm(self, request: TurnRequest) -> bool:
        registries = [binding.registry for binding in self.spine.host.bindings()]
        return any(r.peek(request.response_id, tenant="", domain=request.domain) for r in registries)

    def check_nothing_is_left(self) -> None:
        for binding in self.spine.loads:
            lane, registry = binding.lane, binding.registry
            assert (lane.active, lane.waiting, lane.permits) == (0, 0, 0)
            assert registry.leased == 0
            assert registry.pending_disposals == 0
            assert len(registry) <= (64 if registry.paged else 1)
            assert (binding.gate.readers, binding.gate.writer_waits) == (0, False)


@pytest.mark.parametrize("flat", [False, True], ids=["paged", "flat"])
@pytest.mark.parametrize(
    ("what", "state"),
    [
        ("leave", "fresh"),
        ("leave", "chained"),
        ("leave", "queued"),
        ("leave", "choices"),
        ("drop own", "chained"),
        ("drop own", "queued"),
        ("drop own", "choices"),
        ("drop previous", "chained"),
        ("unload", "fresh"),
        ("unload", "queued"),
    ],
)
async def test_a_turn_disturbed_at_any_await_leaves_nothing_behind(what: str, state: str, flat: bool) -> None:
    tasks = ProbedTasks()
    async with rig(flat=flat, capacity=2, tasks=tasks, start_engine=HoldingEngine.start) as spine:
        for at in itertools.count(1):
            if not spine.host.bindings():
                await spine.host.load("m")
            case = Case(spine, tasks, state=state)
            await case.run(what, at)
            case.check_nothing_is_left()
            stored = await case.stored(case.request)
            if what == "leave":
                assert not case.warm(case.request) or not tasks.reached
            else:
                assert stored, "only its own client ends a turn"
            if what == "drop own" and case.dropped:
                assert not case.warm(case.request)
            await check_the_next_turn(case, stored=stored, what=what)
            if not tasks.reached:
                break
        assert at > 2
        await check_the_engine_is_empty(spine)


async def check_the_next_turn(case: Case, *, stored: bool, what: str) -> None:
    spine = case.spine
    previous = case.request if stored else case.first
    warm = case.warm(previous)
    if not stored and case.state in ("chained", "choices"):
        assert warm, "an interrupted turn leaves its conversation warm"
    outcome = await spine.finished(spine.ask("next", previous_response_id=previous.response_id))
    assert outcome.message.text == "echo: next"
    assert (outcome.cache.outcome is CacheOutcome.HIT) == warm
    if what == "drop own" and case.dropped:
        assert outcome.cache.reason == "deleted"
    case.check_nothing_is_left()


async def check_the_engine_is_empty(spine: Rig) -> None:
    """No owner still holds cells once no session is warm."""
    if not spine.host.bindings():
        return
    spine.registry.clear()
    await spine.registry.flush_disposals()
    assert isinstance(spine.binding.engine, HoldingEngine)
    assert (await spine.binding.engine.stats()).cells_owned == 0
