"""Background responses that another server of the store attends: followed as they are logged, cancelled by a mark."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import httpx
import pytest

from support.background import PATH, Server
from support.edge import UNIX_S, Connection, edge_app, settle, sse_events
from support.fake_turns import FakeRuns, text_turn
from warmlane.api.responses.replay import ELSEWHERE_S, LAG_S, LOOK_S
from warmlane.errors import StoreUnavailable
from warmlane.turns.archive import Archived
from warmlane.turns.runs import LoggedEvent


@dataclass
class Runs(FakeRuns):
    """`meanwhile` happens after each look at the log."""

    meanwhile: Callable[[], None] = lambda: None

    async def events(self, response_id: str, tenant: str, *, after: int) -> tuple[LoggedEvent, ...]:
        page = await super().events(response_id, tenant, after=after)
        self.meanwhile()
        return page


class Elsewhere:
    """A run with its whole log, of which this server sees what `logged` was called for, by a connection of its own."""

    def __init__(self, server: Server, name: str) -> None:
        self.server, self.name, self.key = server, name, ("", name)
        assert isinstance(server.runs, Runs)
        self.runs = server.runs
        self.row: Archived = server.archive.rows[self.key]
        self.log: list[LoggedEvent] = list(server.runs.log[self.key])
        server.archive.rows[self.key] = replace(self.row, outcome=None, status="in_progress")
        server.runs.log[self.key] = []
        self.app = edge_app(server.turns, archive=server.archive, runs=server.runs, clock=server.clock)

    def follow(self, after: int | None = None) -> Connection:
        query = "stream=true" if after is None else f"stream=true&starting_after={after}"
        return Connection(self.app, f"{PATH}/{self.name}", b"", method="GET", query=query)

    def logged(self, until: int) -> None:
        self.server.runs.log[self.key] = self.log[:until]

    async def look(self) -> None:
        await settle()
        self.server.clock.advance(LOOK_S)
        await settle()


@pytest.fixture
async def elsewhere() -> Elsewhere:
    server = Server(text_turn("Hello"), runs=Runs)
    name = (await server.begin())["id"]
    await server.turns.settle()
    return Elsewhere(server, name)


def told(connection: Connection) -> list[dict[str, Any]]:
    return sse_events(b"".join(connection.writes), named=True) if connection.writes else []


def numbers(connection: Connection) -> list[int]:
    return [event["sequence_number"] for event in told(connection)]


async def test_it_is_told_as_it_is_logged_to_its_end(elsewhere: Elsewhere) -> None:
    whole, tail = elsewhere.follow(), elsewhere.follow(2)
    await settle()
    assert (whole.writes, tail.writes) == ([], [])
    for until in (2, 5, len(elsewhere.log)):
        elsewhere.logged(until)
        await elsewhere.look()
        assert numbers(whole) == list(range(until))
        assert numbers(tail) == list(range(3, until))
    assert told(whole)[-1]["type"] == "response.completed"
    assert whole.ended
    assert tail.ended


async def test_what_is_logged_between_two_looks_is_told(elsewhere: Elsewhere) -> None:
    elsewhere.runs.meanwhile = lambda: elsewhere.logged(len(elsewhere.log))
    connection = elsewhere.follow()
    await elsewhere.look()
    assert numbers(connection) == list(range(len(elsewhere.log)))


async def test_its_last_events_are_waited_for_a_while(elsewhere: Elsewhere) -> None:
    elsewhere.logged(3)
    connection = elsewhere.follow()
    await elsewhere.look()
    elsewhere.server.archive.rows[elsewhere.key] = replace(elsewhere.row, completed_at=UNIX_S - 1)
    await elsewhere.look()
    assert numbers(connection) == [0, 1, 2]
    elsewhere.logged(len(elsewhere.log))
    await elsewhere.look()
    assert numbers(connection) == list(range(len(elsewhere.log)))
    assert connection.ended


@pytest.mark.parametrize("completed_at", [UNIX_S - 1, UNIX_S + 9999, UNIX_S - 10])
async def test_last_events_that_never_come_do_not_hide_the_end(elsewhere: Elsewhere, completed_at: float) -> None:
    elsewhere.logged(3)
    connection = elsewhere.follow()
    await elsewhere.look()
    elsewhere.server.archive.rows[elsewhere.key] = replace(elsewhere.row, completed_at=completed_at)
    for _ in range(int(LAG_S / LOOK_S) + 1):
        await elsewhere.look()
    assert numbers(connection) == [0, 1, 2, 3]
    assert told(connection)[-1]["type"] == "response.completed"
    assert connection.ended


async def test_one_that_is_deleted_meanwhile_ends_in_the_dialects_error(elsewhere: Elsewhere) -> None:
    elsewhere.logged(2)
    connection = elsewhere.follow()
    await elsewhere.look()
    del elsewhere.server.archive.rows[elsewhere.key]
    await elsewhere.look()
    last = told(connection)[-1]
    assert (last["type"], last["sequence_number"]) == ("error", 2)
    assert last["error"]["message"] == last["message"]
    assert connection.ended


async def test_a_follower_that_leaves_asks_no_more(elsewhere: Elsewhere) -> None:
    connection = elsewhere.follow()
    await elsewhere.look()
    connection.disconnect()
    await connection.task
    assert elsewhere.server.clock.pending == 0


async def cancelling(elsewhere: Elsewhere) -> asyncio.Task[httpx.Response]:
    task = asyncio.create_task(elsewhere.server.client.post(f"{PATH}/{elsewhere.name}/cancel"))
    await elsewhere.look()
    return task


async def test_it_is_asked_to_stop_and_waited_for(elsewhere: Elsewhere) -> None:
    task = await cancelling(elsewhere)
    assert elsewhere.server.runs.asked_to_cancel == [elsewhere.name]
    assert not task.done()
    elsewhere.server.archive.rows[elsewhere.key] = replace(elsewhere.row, outcome=None, status="cancelled")
    await elsewhere.look()
    answer = await task
    assert (answer.status_code, answer.json()["status"]) == (200, "cancelled")


async def test_one_whose_server_does_not_heed_it_is_told_as_it_is(elsewhere: Elsewhere) -> None:
    task = await cancelling(elsewhere)
    for _ in range(int(ELSEWHERE_S / LOOK_S) - 1):
        assert not task.done()
        await elsewhere.look()
    answer = await task
    assert (answer.status_code, answer.json()["status"]) == (200, "in_progress")


async def test_a_store_that_is_away_is_told(elsewhere: Elsewhere) -> None:
    elsewhere.server.runs.down = StoreUnavailable("away")
    answer = await (await cancelling(elsewhere))
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "store_unavailable")
