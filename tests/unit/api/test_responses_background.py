"""Background responses: begun, followed by anybody, cancelled, and told of when their server is another."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from support.background import BODY, PATH, Server
from support.edge import Connection, check_responses, edge_app, settle, sse_events
from support.fake_turns import MODEL, Step, rich_turn, text_turn
from support.manual_clock import ManualClock
from warmlane.conversation.events import Failed, Loading, Started, TextDelta, Validated
from warmlane.conversation.turn import Usage
from warmlane.errors import EngineDied, EngineFault, EngineOutOfMemory, InvalidRequest, TurnTimeout, Unavailable


def gated(gate: asyncio.Event) -> list[Step]:
    return [Validated(), Started(12, 5), TextDelta("Hello"), gate.wait, *text_turn("Hello")[3:]]


async def test_a_response_is_told_of_at_once_and_fetched_later() -> None:
    gate = asyncio.Event()
    server = Server(gated(gate))
    queued = await server.begin()
    assert (queued["status"], queued["background"], queued["output"], queued["usage"]) == ("queued", True, [], None)
    await settle()
    running = await server.get(queued["id"])
    assert (running["status"], running["background"]) == ("in_progress", True)
    gate.set()
    await server.turns.settle()
    done = await server.get(queued["id"])
    assert (done["status"], done["output"][0]["content"][0]["text"]) == ("completed", "Hello")
    assert server.turns.accepted == [True]
    items = (await server.client.get(f"{PATH}/{queued['id']}/input_items")).status_code
    assert items == 200


async def test_two_followers_get_the_exact_tail_while_it_runs_and_after() -> None:
    gate = asyncio.Event()
    server = Server(gated(gate))
    name = (await server.begin())["id"]
    await settle()
    whole, tail = (asyncio.create_task(server.follow(name, after)) for after in (None, 2))
    await settle()
    gate.set()
    events = await whole
    assert [event["type"].removeprefix("response.") for event in events[:3]] == ["created", "queued", "in_progress"]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[-1]["type"] == "response.completed"
    assert await tail == events[3:]
    await server.turns.settle()
    assert await server.follow(name) == events
    assert await server.follow(name, 4) == events[5:]
    assert await server.follow(name, len(events)) == []


async def test_a_stream_may_be_left_and_taken_up_again() -> None:
    gate = asyncio.Event()
    server = Server(gated(gate))
    app = edge_app(server.turns, archive=server.archive, runs=server.runs)
    connection = Connection(app, PATH, {**BODY, "stream": True})
    await settle()
    seen = sse_events(b"".join(connection.writes), named=True)
    connection.disconnect()
    await connection.task
    assert not server.turns.streams[0].closed
    gate.set()
    await server.turns.settle()
    later = await server.follow(seen[0]["response"]["id"], seen[-1]["sequence_number"])
    assert later[-1]["type"] == "response.completed"
    assert [event["sequence_number"] for event in [*seen, *later]] == list(range(len(seen) + len(later)))


async def test_everything_is_told_as_in_the_foreground() -> None:
    server = Server(rich_turn())
    name = (await server.begin())["id"]
    await server.turns.settle()
    events = [event for event in await server.follow(name) if event["type"] != "response.queued"]
    for number, event in enumerate(events):
        event["sequence_number"] = number
    check_responses(events)
    assert events[-1]["response"] == {**await server.get(name), "completed_at": events[-1]["response"]["completed_at"]}


async def test_warnings_are_in_the_header_if_known_by_then_and_in_the_last_event() -> None:
    for first in ([], [Loading()]):
        server = Server([*first, Validated(("the schema's 'not'",)), *text_turn("x")[1:]])
        got = await server.client.post(PATH, json={**BODY, "odd_field": 1})
        told = "odd_field" if first else "odd_field, the schema's 'not'"
        assert got.headers["x-warmlane-warnings"] == told
        await server.turns.settle()
        assert (await server.follow(got.json()["id"]))[-1]["warnings"] == ["the schema's 'not'"]


async def test_silence_is_broken_by_comments() -> None:
    clock, gate = ManualClock(), asyncio.Event()
    server = Server(gated(gate))
    app = edge_app(server.turns, archive=server.archive, runs=server.runs, clock=clock)
    connection = Connection(app, PATH, {**BODY, "stream": True})
    await settle()
    clock.advance(10)
    await settle()
    assert connection.writes[-1].startswith(b":")
    gate.set()
    await connection.task
    assert connection.ended
    await server.turns.settle()


async def test_cancelling_stops_it_once_and_for_all() -> None:
    server = Server(gated(asyncio.Event()))
    name = (await server.begin())["id"]
    await settle()
    follower = asyncio.create_task(server.follow(name))
    await settle()
    for _ in range(2):
        got = await server.client.post(f"{PATH}/{name}/cancel")
        assert (got.status_code, got.json()["status"]) == (200, "cancelled")
    events = await follower
    assert events[-1]["response"]["status"] == "cancelled"
    assert await server.get(name) == events[-1]["response"]
    assert events[-2]["item"]["status"] == "incomplete"
    assert events[-1]["response"]["output"] == [events[-2]["item"]]


async def test_what_has_ended_stays_as_it_is() -> None:
    server = Server(text_turn("x"))
    name = (await server.begin())["id"]
    await server.turns.settle()
    assert (await server.client.post(f"{PATH}/{name}/cancel")).json()["status"] == "completed"


async def test_a_run_that_fails_says_why() -> None:
    server = Server([Validated(), Started(1, 0), Failed(EngineFault("it broke"))])
    name = (await server.begin())["id"]
    await server.turns.settle()
    failed = await server.get(name)
    assert (failed["status"], failed["error"]["message"]) == ("failed", "it broke")
    assert [event["type"] for event in (await server.follow(name))[-2:]] == ["error", "response.failed"]


@pytest.mark.parametrize("error", [EngineDied("gone"), EngineOutOfMemory("full"), TurnTimeout(3), RuntimeError("bug")])
async def test_what_there_was_of_a_run_that_failed_stays_with_what_it_cost(error: Exception) -> None:
    spent = Usage(prompt_tokens=7, output_tokens=2)
    server = Server([Validated(), Started(7, 0), TextDelta("so f"), TextDelta("ar"), Failed(error, usage=spent)])
    name = (await server.begin())["id"]
    await server.turns.settle()
    failed = await server.get(name)
    assert (await server.follow(name))[-1]["response"] == failed
    assert (failed["error"]["code"], failed["usage"]["total_tokens"]) == ("server_error", 9)
    assert failed["output"][0]["content"][0]["text"] == "so far"


async def test_a_request_that_is_unsound_leaves_no_row() -> None:
    server = Server([Failed(InvalidRequest("'input': no.", param="input"))])
    got = await server.client.post(PATH, json=BODY)
    assert (got.status_code, got.json()["error"]["param"]) == (400, "input")
    assert server.archive.rows == {}
    assert server.turns.open_permits == 0


async def test_a_store_that_is_away_takes_no_runs_and_loses_none_that_run() -> None:
    server = Server(text_turn("x"))
    server.runs.down = Unavailable("The store is away.")
    got = await server.client.post(PATH, json=BODY)
    assert got.status_code == 503
    assert (server.turns.open_permits, server.turns.requests) == (0, [])
    gate = asyncio.Event()
    server = Server(gated(gate))
    name = (await server.begin())["id"]
    await settle()
    server.runs.down = Unavailable("The store is away.")
    follower = asyncio.create_task(server.follow(name))
    await settle()
    gate.set()
    assert (await follower)[-1]["type"] == "response.completed"
    await server.turns.settle()
    assert server.turns.accepted == [False]


@pytest.mark.parametrize(
    ("fields", "param"),
    [({"store": False}, "store"), ({"background": "yes"}, "background"), ({"temperature": 9}, "temperature")],
)
async def test_what_cannot_be_begun(fields: dict[str, Any], param: str) -> None:
    server = Server(text_turn("x"))
    got = await server.client.post(PATH, json={**BODY, **fields})
    assert (got.status_code, got.json()["error"]["param"]) == (400, param)
    assert (server.turns.open_permits, server.archive.rows) == (0, {})


@pytest.mark.parametrize("query", ["starting_after=x", "starting_after=-1", "starting_after=1e3"])
async def test_a_bad_number_is_refused(query: str) -> None:
    server = Server(text_turn("x"))
    name = (await server.begin())["id"]
    await server.turns.settle()
    got = await server.client.get(f"{PATH}/{name}?stream=true&{query}")
    assert (got.status_code, got.json()["error"]["param"]) == (400, "starting_after")


@pytest.mark.parametrize(
    ("query", "status", "ignored"),
    [
        ("", 200, None),
        ("stream=false&starting_after=3&include=a&more=1", 200, "starting_after, include, more"),
        ("stream=True&starting_after=1&include_obfuscation=true", 200, "include_obfuscation"),
        ("stream=1", 400, None),
        ("stream=", 400, None),
    ],
)
async def test_what_of_a_query_has_no_effect_is_named(query: str, status: int, ignored: str | None) -> None:
    server = Server(text_turn("x"))
    name = (await server.begin())["id"]
    await server.turns.settle()
    got = await server.client.get(f"{PATH}/{name}?{query}")
    assert (got.status_code, got.headers.get("x-warmlane-warnings")) == (status, ignored)


async def test_the_unknown_is_not_found() -> None:
    server = Server(text_turn("x"))
    for method, path in (("GET", f"{PATH}/resp_9?stream=true"), ("POST", f"{PATH}/resp_9/cancel")):
        assert (await server.client.request(method, path)).status_code == 404


async def test_only_a_background_response_is_cancelled() -> None:
    server = Server(text_turn("x"))
    body = (await server.client.post(PATH, json={"model": MODEL, "input": "hi"})).json()
    got = await server.client.post(f"{PATH}/{body['id']}/cancel")
    assert (got.status_code, got.json()["error"]["param"]) == (400, "response_id")


async def test_the_log_is_what_was_told() -> None:
    server = Server(rich_turn())
    name = (await server.begin())["id"]
    await server.turns.settle()
    logged = [json.loads(event.data) for event in server.runs.log["", name]]
    assert logged == await server.follow(name)
    assert [event.sequence for event in server.runs.log["", name]] == [event["sequence_number"] for event in logged]
