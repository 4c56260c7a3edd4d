"""Streams over a connection: the first byte, keep-alives, leaving, stalling, and who is told that the end arrived."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from support.edge import Connection, check_chat, check_messages, check_responses, edge_app, settle, sse_events
from support.fake_turns import MODEL, FakeTurns, outcome, text_turn
from support.manual_clock import ManualClock
from warmlane.api.settings import EdgeSettings
from warmlane.conversation.events import Failed, Finished, Loading, Started, TextDelta, Validated
from warmlane.conversation.messages import Text
from warmlane.errors import (
    ContextOverflow,
    EngineDied,
    EngineFault,
    InvalidRequest,
    PreviousResponseNotFound,
    QueueTimeout,
    Unavailable,
)

BODIES: dict[str, dict[str, Any]] = {
    "/v1/responses": {"model": MODEL, "input": "hi"},
    "/v1/messages": {"model": MODEL, "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]},
    "/v1/chat/completions": {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]},
}
PATHS = list(BODIES)
CHECKS = {"/v1/responses": check_responses, "/v1/messages": check_messages, "/v1/chat/completions": check_chat}


def connect(turns: FakeTurns, path: str, *, clock: ManualClock | None = None, stream: bool = True) -> Connection:
    app = edge_app(turns, clock=clock, settings=EdgeSettings(drain_timeout_s=30))
    return Connection(app, path, {**BODIES[path], "stream": stream})


def events_of(connection: Connection, path: str) -> list[dict[str, Any]]:
    return sse_events(b"".join(connection.writes), named=path != "/v1/chat/completions")


@pytest.mark.parametrize("path", PATHS)
async def test_one_write_an_event_and_the_turn_is_accepted(path: str) -> None:
    turns = FakeTurns()
    connection = connect(turns, path)
    await connection.task
    await turns.settle()
    assert (connection.status, connection.ended, turns.accepted) == (200, True, [True])
    for write in connection.writes:
        assert write.endswith(b"\n\n")
        assert write.count(b"\n\n") == 1
    CHECKS[path](events_of(connection, path))


@pytest.mark.parametrize("path", PATHS)
async def test_a_client_that_waits_for_a_load_hears_something(path: str) -> None:
    gate = asyncio.Event()
    turns = FakeTurns([Loading(), gate.wait, Failed(Unavailable("The model could not be loaded."))])
    connection = connect(turns, path)
    await settle()
    assert connection.status == 200
    assert connection.writes
    gate.set()
    await connection.task
    assert b"could not be loaded" in connection.writes[-1]


async def test_an_answer_in_one_piece_keeps_its_status_after_a_load() -> None:
    connection = connect(FakeTurns([Loading(), Failed(Unavailable("no"))]), PATHS[0], stream=False)
    await connection.task
    assert connection.status == 503


@pytest.mark.parametrize("path", PATHS)
async def test_the_stream_begins_as_soon_as_the_request_is_sound(path: str) -> None:
    gate = asyncio.Event()
    turns = FakeTurns([Validated(), gate.wait, *text_turn("x")[1:]])
    connection = connect(turns, path)
    await settle()
    assert connection.status == 200
    assert connection.writes
    gate.set()
    await connection.task
    CHECKS[path](events_of(connection, path))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("stream", [True, False])
async def test_what_the_model_cannot_do_is_named_like_what_the_request_may_not(path: str, stream: bool) -> None:
    turns = FakeTurns([Validated(("the schema's 'not'",)), *text_turn("x")[1:]])
    connection = Connection(edge_app(turns), path, {**BODIES[path], "stream": stream, "odd_field": 1})
    await connection.task
    start = next(message for message in connection.sent if message["type"] == "http.response.start")
    assert dict(start["headers"])[b"x-warmlane-warnings"] == b"odd_field, the schema's 'not'"


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("phase", ["queue", "prefill", "decode"])
async def test_keep_alives_by_wall_clock_in_every_phase(path: str, phase: str) -> None:
    clock, gate = ManualClock(), asyncio.Event()
    place = {"queue": 1, "prefill": 2, "decode": 3}[phase]
    script = text_turn("one", "two")
    turns = FakeTurns([*script[:place], gate.wait, *script[place:]])
    connection = connect(turns, path, clock=clock)
    await settle()
    before = len(connection.writes)
    for round_ in range(1, 4):
        clock.advance(9.9)
        await settle()
        assert len(connection.writes) == before + round_ - 1
        clock.advance(0.1)
        await settle()
        assert len(connection.writes) == before + round_
    beat = connection.writes[-1]
    assert beat.startswith((b"event: response.in_progress", b"event: ping", b": "))
    gate.set()
    await connection.task
    CHECKS[path](events_of(connection, path))


async def test_a_busy_stream_needs_no_keep_alive() -> None:
    clock, steps = ManualClock(), asyncio.Queue[None]()
    script = text_turn(*"abcd")
    turns = FakeTurns([script[0], *(step for event in script[1:] for step in (steps.get, event))])
    connection = connect(turns, "/v1/messages", clock=clock)
    for _ in script[1:]:
        await settle()
        clock.advance(6)
        steps.put_nowait(None)
    await connection.task
    assert [event["type"] for event in events_of(connection, "/v1/messages")].count("ping") == 1


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("place", range(5))
async def test_a_client_that_leaves_closes_its_turn(path: str, stream: bool, place: int) -> None:
    script = text_turn("one", "two")
    never = asyncio.Event()
    turns = FakeTurns([*script[:place], never.wait])
    connection = connect(turns, path, stream=stream)
    await settle()
    assert not turns.streams[0].closed
    connection.disconnect()
    await connection.task
    assert turns.streams[0].closed
    turns.tasks[0].cancel()


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("stream", [True, False])
async def test_a_close_that_was_reported_before_the_end_is_not_acceptance(path: str, stream: bool) -> None:
    turns = FakeTurns()
    connection = connect(turns, path, stream=stream)
    connection.block()
    await settle()
    connection.disconnect()
    connection.unblock()
    await connection.task
    await turns.settle()
    assert turns.accepted == [False]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("stream", [True, False])
async def test_the_last_write_decides(path: str, stream: bool) -> None:
    """The close comes while the last bytes are being written: the turn must hear of it."""
    gate = asyncio.Event()
    script = text_turn("one")
    turns = FakeTurns([*script[:-1], gate.wait, script[-1]])
    connection = connect(turns, path, stream=stream)
    await settle()
    connection.block()
    gate.set()
    await settle()
    connection.disconnect()
    connection.unblock()
    await connection.task
    await turns.settle()
    assert turns.accepted == [False]


@pytest.mark.parametrize("stream", [True, False])
async def test_an_answer_is_accepted_even_if_the_client_then_leaves(stream: bool) -> None:
    turns = FakeTurns()
    connection = connect(turns, "/v1/chat/completions", stream=stream)
    await connection.task
    connection.disconnect()
    await turns.settle()
    assert turns.accepted == [True]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("stream", [True, False])
async def test_a_failed_write_is_a_close(path: str, stream: bool) -> None:
    turns = FakeTurns()
    connection = connect(turns, path, stream=stream)
    connection.writes_fail = True
    await connection.task
    await turns.settle()
    assert turns.accepted == [False]
    assert turns.streams[0].closed


async def test_a_stalled_client_is_given_up_after_the_drain_timeout() -> None:
    clock = ManualClock()
    turns = FakeTurns([Validated(), Started(3, 0), *(TextDelta(str(n)) for n in range(1000))], buffer_events=8)
    connection = connect(turns, "/v1/chat/completions", clock=clock)
    connection.block()
    await settle()
    assert not turns.tasks[0].done()
    clock.advance(29)
    await settle()
    assert not turns.streams[0].closed
    clock.advance(1)
    await asyncio.wait_for(connection.task, 5)
    assert turns.streams[0].closed
    assert not connection.ended
    await turns.settle()


async def test_a_slow_client_gets_everything() -> None:
    turns = FakeTurns(text_turn(*(str(n % 10) for n in range(500))), buffer_events=4)
    connection = connect(turns, "/v1/chat/completions")
    connection.block()
    await settle()
    assert not turns.tasks[0].done()
    connection.unblock()
    await connection.task
    await turns.settle()
    assert len(connection.writes) == 503
    assert turns.accepted == [True]


@pytest.mark.parametrize("path", PATHS)
async def test_a_cancelled_server_task_closes_the_turn(path: str) -> None:
    turns = FakeTurns([Validated(), asyncio.Event().wait])
    connection = connect(turns, path)
    await settle()
    connection.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await connection.task
    assert turns.streams[0].closed
    turns.tasks[0].cancel()


FAULTS = [
    (InvalidRequest("no", param="input"), 400, "invalid_request_error", None),
    (PreviousResponseNotFound("resp_1"), 400, "invalid_request_error", None),
    (QueueTimeout("late", retry_after_s=7), 503, "overloaded_error", "7"),
    (Unavailable("draining"), 503, "overloaded_error", "1"),
    (EngineDied("the worker is gone"), 503, "overloaded_error", "1"),
    (EngineFault("the engine failed"), 500, "api_error", None),
    (RuntimeError("secret"), 500, "api_error", None),
]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("error", "status", "kind", "retry_after"), FAULTS)
async def test_a_fault_before_the_stream_has_a_status(
    path: str, stream: bool, error: Exception, status: int, kind: str, retry_after: str | None
) -> None:
    turns = FakeTurns([Failed(error)])
    connection = connect(turns, path, stream=stream)
    await connection.task
    await turns.settle()
    headers = dict(connection.sent[0]["headers"])
    assert connection.status == status
    assert headers.get(b"retry-after", b"").decode() == (retry_after or "")
    assert b"secret" not in connection.writes[0]
    if path == "/v1/messages":
        assert f'"{kind}"'.encode() in connection.writes[0]


@pytest.mark.parametrize("place", range(1, 4))
@pytest.mark.parametrize(("error", "status", "kind", "retry_after"), FAULTS[2:])
@pytest.mark.parametrize("path", PATHS)
async def test_a_fault_in_the_stream_ends_it_once(
    path: str, error: Exception, status: int, kind: str, retry_after: str | None, place: int
) -> None:
    turns = FakeTurns([*text_turn("one", "two")[:place], Failed(error)])
    connection = connect(turns, path)
    await connection.task
    assert (connection.status, connection.ended) == (200, True)
    assert b"secret" not in b"".join(connection.writes)
    events = events_of(connection, path)
    if path == "/v1/responses":
        check_responses(events)
        assert [event["type"] for event in events[-2:]] == ["error", "response.failed"]
        assert events[-2]["error"]["message"] == events[-2]["message"]
    elif path == "/v1/messages":
        check_messages(events, complete=False)
        assert events[-1]["error"]["type"] == kind
    else:
        assert set(events[-1]) == {"error"}
        assert [event for event in events if "error" in event] == events[-1:]
        assert b"[DONE]" not in connection.writes[-1]


async def test_an_overflow_is_told_as_each_dialect_wants_it() -> None:
    overflow = FakeTurns([Failed(ContextOverflow(9000, 4096))])
    for path in PATHS:
        whole = connect(overflow, path, stream=False)
        await whole.task
        assert whole.status == 400
        expected = b"prompt is too long: 9000 tokens > 4096 maximum"
        assert (expected if path == "/v1/messages" else b"context_length_exceeded") in whole.writes[0]
    for path in PATHS[1:]:
        streamed = connect(overflow, path)
        await streamed.task
        assert streamed.status == 400
    responses = connect(overflow, PATHS[0])
    await responses.task
    events = events_of(responses, PATHS[0])
    assert [e["type"] for e in events] == ["response.created", "response.in_progress", "error", "response.failed"]
    assert events[-1]["response"]["error"]["code"] == events[-2]["code"] == "context_length_exceeded"


async def test_a_fault_is_told_where_the_answer_is_whole() -> None:
    turns = FakeTurns([Validated(), Started(3, 0), TextDelta("half"), Failed(EngineDied("gone"))])
    connection = connect(turns, "/v1/messages", stream=False)
    await connection.task
    assert connection.status == 503
    assert b"half" not in connection.writes[0]


async def test_awkward_text_comes_through() -> None:
    said = ["\U0001f1e8", "\U0001f1ed", "a\u2028b", "c\x85d", "\r\n\t", '"\\', "e\u0301"]
    for path in PATHS:
        turns = FakeTurns([Validated(), Started(3, 0), *map(TextDelta, said), Finished(outcome(Text("".join(said))))])
        connection = connect(turns, path)
        await connection.task
        CHECKS[path](events := events_of(connection, path))
        got = "".join(
            event.get("delta", "") if event.get("type") == "response.output_text.delta" else "" for event in events
        )
        if path == "/v1/responses":
            assert got == "".join(said)
