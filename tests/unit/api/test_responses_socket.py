"""Responses over a WebSocket: the same events, one turn at a time, and what closes the connection."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from support.edge import check_responses, edge_app, settle
from support.fake_turns import MODEL, FakeHost, FakeTurns, Scripts, Step, rich_turn, text_turn
from support.manual_clock import ManualClock
from support.websocket import EVENT, Socket, connected, error_of
from warmlane.api.auth import ApiKey, KeyRing
from warmlane.api.responses.socket import MAX_PENDING
from warmlane.api.settings import EdgeSettings
from warmlane.conversation.events import Failed, Loading, Started, Validated
from warmlane.errors import ContextOverflow, EngineFault, InvalidRequest, QueueFull


async def test_the_events_are_those_of_a_stream() -> None:
    turns = FakeTurns(rich_turn())
    async with connected(edge_app(turns)) as socket:
        events = await socket.ask()
    check_responses(events)
    for event in events:
        EVENT.validate_python(event)
    assert turns.accepted == [True]
    assert socket.sent[0]["type"] == "websocket.accept"


async def test_turns_follow_each_other_on_one_socket() -> None:
    gate = asyncio.Event()
    turns = Scripts([Validated(), gate.wait, *text_turn("one")[1:]], text_turn("two"))
    async with connected(edge_app(turns)) as socket:
        socket.create()
        socket.create()
        await settle()
        assert len(turns.requests) == 1
        gate.set()
        await settle()
    ends = [event for event in socket.events if event["type"] == "response.completed"]
    assert [end["response"]["output"][0]["content"][0]["text"] for end in ends] == ["one", "two"]
    assert len({request.request_id for request in turns.requests}) == 2


async def test_warnings_are_told_in_the_first_event() -> None:
    turns = FakeTurns([Validated(("the schema's 'not'",)), *text_turn("x")[1:]])
    async with connected(edge_app(turns)) as socket:
        events = await socket.ask(odd_field=1, tools=[{"type": "web_search"}])
        plain = await socket.ask()
    assert events[0]["warnings"] == ["odd_field", "tools[0] (web_search)", "the schema's 'not'"]
    assert plain[0]["warnings"] == ["the schema's 'not'"]
    check_responses(events)


async def test_warnings_that_come_late_are_told_in_the_last_event() -> None:
    turns = FakeTurns([Loading(), Validated(("the schema's 'not'",)), *text_turn("x")[1:]])
    async with connected(edge_app(turns)) as socket:
        events = await socket.ask(odd_field=1)
    assert (events[0]["warnings"], events[-1]["warnings"]) == (["odd_field"], ["the schema's 'not'"])
    check_responses(events)


async def test_fields_of_http_have_no_effect() -> None:
    turns = FakeTurns()
    async with connected(edge_app(turns)) as socket:
        events = await socket.ask(stream=False, stream_options={}, background=False)
    assert events[-1]["type"] == "response.completed"


@pytest.mark.parametrize(
    ("said", "status", "param"),
    [
        ("{", 400, None),
        ("[]", 400, None),
        (b"\xff", 400, None),
        ('{"type": "response.cancel"}', 400, "type"),
        ("{}", 400, "type"),
        ({"type": "response.create", "input": "hi"}, 400, "model"),
        ({"type": "response.create", "model": "gpt-9", "input": "hi"}, 404, "model"),
        ({"type": "response.create", "model": MODEL, "input": []}, 400, "input"),
        ({"type": "response.create", "model": MODEL, "input": "hi", "temperature": 9}, 400, "temperature"),
        ({"type": "response.create", "model": MODEL, "input": "hi", "background": True}, 400, "background"),
        ({"type": "response.create", "model": MODEL, "input": "hi", "stream_id": "s"}, 400, "stream_id"),
        ("x" * 2000, 413, None),
    ],
)
async def test_a_message_that_is_none_is_told_and_the_socket_goes_on(
    said: dict[str, Any] | str | bytes, status: int, param: str | None
) -> None:
    turns = FakeTurns()
    async with connected(edge_app(turns, settings=EdgeSettings(max_body_bytes=1000))) as socket:
        socket.say(said)
        await settle()
        assert error_of(socket.events)["param"] == param
        assert socket.events[0]["status"] == status
        assert turns.open_permits == 0
        events = await socket.ask()
    assert events[-1]["type"] == "response.completed"


async def test_an_overload_says_when_to_try_again() -> None:
    turns = FakeTurns(refusal=QueueFull(waiting=1, permits=2, limit=3, retry_after_s=7))
    async with connected(edge_app(turns)) as socket:
        error = error_of(await socket.ask())
    assert (error["code"], error["headers"]) == ("queue_full", {"retry-after": "7"})


@pytest.mark.parametrize(
    ("script", "kinds"),
    [
        ([Failed(InvalidRequest("'input': no.", param="input"))], ["error"]),
        (
            [Failed(ContextOverflow(9, 8))],
            ["response.created", "response.in_progress", "error", "response.failed"],
        ),
        (
            [Validated(), Started(1, 0), Failed(EngineFault("it broke"))],
            ["response.created", "response.in_progress", "error", "response.failed"],
        ),
    ],
)
async def test_a_turn_that_fails(script: list[Step], kinds: list[str]) -> None:
    turns = Scripts(script, text_turn("x"))
    async with connected(edge_app(turns)) as socket:
        events = await socket.ask()
        assert [event["type"] for event in events] == kinds
        after = await socket.ask()
    assert after[-1]["type"] == "response.completed"


async def test_a_client_that_leaves_ends_its_turn() -> None:
    never = asyncio.Event()
    turns = FakeTurns([Validated(), never.wait])
    socket = Socket(edge_app(turns))
    socket.create()
    await settle()
    assert not turns.streams[0].closed
    socket.leave()
    await socket.task
    assert turns.streams[0].closed
    for task in turns.tasks:
        task.cancel()


async def test_a_client_that_stops_reading_is_left() -> None:
    clock = ManualClock()
    turns = FakeTurns()
    socket = Socket(edge_app(turns, clock=clock, settings=EdgeSettings(drain_timeout_s=30)))
    await settle()
    socket.block()
    socket.create()
    await settle()
    clock.advance(30)
    await socket.task
    assert turns.streams[0].closed
    await turns.settle()
    assert turns.accepted == [False]


async def test_a_silent_turn_is_kept_alive() -> None:
    clock, gate = ManualClock(), asyncio.Event()
    turns = FakeTurns([Validated(), gate.wait, *text_turn("x")[1:]])
    async with connected(edge_app(turns, clock=clock)) as socket:
        socket.create()
        await settle()
        before = len(socket.events)
        clock.advance(10)
        await settle()
        assert [event["type"] for event in socket.events[before:]] == ["response.in_progress"]
        gate.set()
        await settle()
        check_responses(socket.events)


async def test_too_many_messages_at_once_close_the_socket() -> None:
    never = asyncio.Event()
    turns = FakeTurns([Validated(), never.wait])
    socket = Socket(edge_app(turns))
    await settle()
    for _ in range(1 + MAX_PENDING):
        socket.create()
        await settle()
    assert socket.closed is None
    socket.create()
    await settle()
    turns.streams[0].tell(Failed(EngineFault("over")))
    await socket.task
    assert (socket.closed, len(turns.requests)) == (1008, 1)
    turns.tasks[0].cancel()


async def test_too_many_bytes_at_once_close_the_socket_and_a_client_that_leaves_then_is_noticed() -> None:
    never = asyncio.Event()
    turns = FakeTurns([Validated(), never.wait])
    socket = Socket(edge_app(turns, settings=EdgeSettings(max_body_bytes=1000)))
    socket.create()
    await settle()
    socket.create(input="x" * 700)
    socket.create(input="x" * 700)
    socket.create()
    await settle()
    assert not turns.streams[0].closed
    socket.leave()
    await socket.task
    assert turns.streams[0].closed
    assert len(turns.requests) == 1
    turns.tasks[0].cancel()


async def test_messages_that_are_too_large_together_close_the_socket_after_its_turn() -> None:
    gate = asyncio.Event()
    turns = FakeTurns([Validated(), gate.wait, *text_turn("x")[1:]])
    socket = Socket(edge_app(turns, settings=EdgeSettings(max_body_bytes=1000)))
    for text in ("hi", "x" * 700, "x" * 700):
        socket.create(input=text)
        await settle()
    gate.set()
    await socket.task
    assert (socket.closed, len(turns.requests)) == (1008, 1)


async def test_an_idle_socket_is_closed_at_shutdown_and_a_busy_one_after_its_turn() -> None:
    host, gate = FakeHost(), asyncio.Event()
    turns = FakeTurns([Validated(), gate.wait, *text_turn("x")[1:]])
    app = edge_app(turns, host=host)
    idle, busy = Socket(app), Socket(app)
    busy.create()
    busy.create()
    await settle()
    host.begin_drain()
    await idle.task
    assert idle.closed == 1001
    assert busy.closed is None
    gate.set()
    await busy.task
    assert busy.closed == 1001
    assert busy.events[-1]["type"] == "response.completed"
    assert host.told_of_drain == []


KEYS = KeyRing([ApiKey("key-a", "ann"), ApiKey("key-b", "bob")])


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/v1/messages", {"x-api-key": "key-a"}, 426),
        ("/", {"x-api-key": "key-a"}, 426),
        ("/v1/responses", {}, 401),
        ("/v1/responses", {"authorization": "Bearer wrong"}, 401),
        ("/v1/responses", {"x-api-key": "key-a", "host": "evil.example"}, 403),
        ("/v1/responses", {"x-api-key": "key-a", "origin": "https://evil.example"}, 403),
        ("/v1/responses", {"x-api-key": "key-a", "origin": "null"}, 403),
        ("/v1/responses", {"x-api-key": "key-a", "host": "localhost:8080", "origin": "http://localhost:9090"}, 403),
    ],
)
async def test_who_may_connect(path: str, headers: dict[str, str], status: int) -> None:
    socket = Socket(edge_app(FakeTurns(), settings=EdgeSettings(keys=KEYS)), path, headers=headers)
    await socket.task
    assert socket.status == status
    assert socket.refusal.keys() == {"message", "type", "param", "code"}


async def test_a_page_of_this_very_host_may_connect_and_its_key_names_the_tenant() -> None:
    turns = FakeTurns()
    headers = {"authorization": "Bearer key-b", "host": "localhost:8080", "origin": "http://localhost:8080"}
    async with connected(edge_app(turns, settings=EdgeSettings(keys=KEYS)), headers=headers) as socket:
        await socket.ask()
    assert turns.last.tenant == "bob"


async def test_a_key_that_is_taken_back_is_refused_at_the_next_turn() -> None:
    keys = KeyRing([ApiKey("key-a", "ann")])
    app = edge_app(FakeTurns(), settings=EdgeSettings(keys=keys))
    async with connected(app, headers={"x-api-key": "key-a"}) as socket:
        assert (await socket.ask())[-1]["type"] == "response.completed"
        keys.replace([ApiKey("key-c", "ann")])
        assert error_of(await socket.ask())["code"] == "invalid_api_key"
