"""Background responses whose store is slow or away, and what a stream tells of one whose log was cut short."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from msgspec import structs

from support.background import BODY, PATH, Server
from support.edge import settle
from support.fake_turns import FakeArchive, FakeRuns, Step, outcome, text_turn
from warmlane.api.responses.live import BATCH_EVENTS, FIRST_RETRY_S, FLUSH_EVENTS
from warmlane.conversation.events import Failed, Finished, Started, TextDelta, ToolCallDelta, Validated
from warmlane.conversation.turn import CacheFacts, CacheOutcome, Divergence, DivergenceCause
from warmlane.errors import EngineFault, InvalidRequest, Unavailable
from warmlane.turns.runs import LoggedEvent

AWAY = Unavailable("The store is away.")


@dataclass
class WatchedRuns(FakeRuns):
    """`tried` are the sizes of the writes, which wait at `gate`."""

    tried: list[int] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    async def append(self, response_id: str, tenant: str, events: Sequence[LoggedEvent]) -> None:
        self.tried.append(len(events))
        await self.gate.wait()
        await super().append(response_id, tenant, events)


class Undeletable(FakeArchive):
    async def delete(self, response_id: str, tenant: str) -> None:
        raise AWAY


def watched(script: list[Step]) -> tuple[Server, WatchedRuns]:
    server = Server(script, runs=WatchedRuns)
    assert isinstance(server.runs, WatchedRuns)
    return server, server.runs


async def settled(server: Server, n_events: int) -> None:
    """The turn has had the time to say that many events."""
    for _ in range(n_events):
        await settle()


async def test_a_write_that_hangs_does_not_hold_up_the_turn() -> None:
    reached = asyncio.Event()

    async def reach() -> None:
        reached.set()

    server, runs = watched([Validated(), Started(1, 0), *[TextDelta("x")] * 1000, reach, Failed(EngineFault("no"))])
    await server.begin()
    async with asyncio.timeout(5):
        await reached.wait()
    assert not runs.gate.is_set()
    assert len(runs.tried) == 1
    runs.gate.set()
    await server.turns.settle()


async def test_a_store_that_is_away_is_asked_now_and_then_and_for_so_much_at_once() -> None:
    start, go_on = asyncio.Event(), asyncio.Event()
    deltas = [TextDelta("x")] * (BATCH_EVENTS + FLUSH_EVENTS)
    server, runs = watched([Validated(), Started(1, 0), start.wait, *deltas, go_on.wait, *text_turn("x")[3:]])
    runs.gate.set()
    name = (await server.begin())["id"]
    await settle()
    runs.down = AWAY
    start.set()
    await settled(server, 20)
    assert len(runs.tried) == 1
    for n_tries, wait_s in ((2, FIRST_RETRY_S), (3, 2 * FIRST_RETRY_S)):
        server.clock.advance(wait_s / 2)
        await settle()
        assert len(runs.tried) == n_tries - 1
        server.clock.advance(wait_s / 2)
        await settle()
        assert len(runs.tried) == n_tries
    runs.down = None
    go_on.set()
    await server.turns.settle()
    assert max(runs.tried) == BATCH_EVENTS
    numbers = [event["sequence_number"] for event in await server.follow(name)]
    assert numbers == list(range(len(numbers)))
    assert len(numbers) > len(deltas)
    assert server.turns.accepted == [True]


async def test_a_run_its_server_fails_on_has_failed_for_everybody() -> None:
    server = Server([Validated(), Started(1, 0), ToolCallDelta(0, "{}"), Failed(EngineFault("later"))])
    name = (await server.begin())["id"]
    await server.turns.settle()
    assert (await server.get(name))["status"] == "failed"
    assert (await server.follow(name))[-1]["response"]["status"] == "failed"
    assert server.turns.streams[0].closed


async def test_a_row_that_cannot_be_deleted_has_failed_and_hides_no_error() -> None:
    server = Server([Failed(InvalidRequest("'input': no.", param="input"))], archive=Undeletable())
    got = await server.client.post(PATH, json=BODY)
    assert (got.status_code, got.json()["error"]["param"]) == (400, "input")
    assert [row.status for row in server.archive.rows.values()] == ["failed"]


@pytest.mark.parametrize("n_logged", [0, 3, 5])
@pytest.mark.parametrize(("end", "status"), [(None, "completed"), ("failed", "failed"), ("cancelled", "cancelled")])
async def test_a_log_without_its_end_is_told_with_it(n_logged: int, end: str | None, status: str) -> None:
    server = Server(text_turn("Hello"))
    name = (await server.begin())["id"]
    await server.turns.settle()
    key = ("", name)
    del server.runs.log[key][n_logged:]
    if end is not None:
        fault = b'{"code":"server_error","message":"lost"}' if end == "failed" else None
        server.archive.rows[key] = replace(server.archive.rows[key], outcome=None, status=end, error=fault)

    events = await server.follow(name)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert len(events) == n_logged + 1
    assert events[-1]["response"] == await server.get(name)
    assert events[-1]["response"]["status"] == status
    assert [event["sequence_number"] for event in await server.follow(name, 8)] == [9]


async def test_what_another_turn_said_is_not_logged() -> None:
    apart = Divergence(
        cause=DivergenceCause.MESSAGES_CHANGED, offset=4, missed_tokens=3, before="a secret", now="another secret"
    )
    cache = CacheFacts(CacheOutcome.HIT, "hit", 5, apart)
    server = Server([Validated(), Started(1, 0), Finished(structs.replace(outcome(), cache=cache))])
    name = (await server.begin())["id"]
    await server.turns.settle()
    last = server.runs.log["", name][-1].data
    told = json.loads(last)["response"]["prompt_cache_diagnostics"]
    assert (told["reason"], told["comparison_reusable_tokens"]) == ("input_changed", 4)
    assert b"secret" not in last
