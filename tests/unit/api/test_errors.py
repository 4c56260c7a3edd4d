"""The error tree as statuses and envelopes, and what happens to a permit on the way."""

from __future__ import annotations

from typing import Any

import pytest

from support.edge import edge_client
from support.fake_turns import MODEL, FakeTurns
from warmlane.api.errors import INTERNAL_MESSAGE, wire_error
from warmlane.errors import (
    ConfigError,
    ContextOverflow,
    EngineDied,
    EngineFault,
    InvalidRequest,
    ModelNotFound,
    PreviousResponseNotFound,
    QueueFull,
    QueueTimeout,
    ResponseNotFound,
    SessionBusy,
    TurnTimeout,
    Unauthorized,
    Unavailable,
)

PREVIOUS = "previous_response"
BAD = "invalid_request_error"
FULL = QueueFull(waiting=3, permits=1, limit=4, retry_after_s=9)


@pytest.mark.parametrize(
    ("error", "status", "openai", "code", "param", "anthropic"),
    [
        (InvalidRequest("bad", param="a[1].b"), 400, BAD, "invalid_value", "a[1].b", BAD),
        (ContextOverflow(9, 8), 400, BAD, "context_length_exceeded", None, BAD),
        (Unauthorized("who"), 401, BAD, "invalid_api_key", None, "authentication_error"),
        (ModelNotFound("x", ()), 404, BAD, "model_not_found", "model", "not_found_error"),
        (ResponseNotFound("r"), 404, BAD, None, "response_id", "not_found_error"),
        (PreviousResponseNotFound("r"), 400, BAD, PREVIOUS + "_not_found", PREVIOUS + "_id", BAD),
        (FULL, 429, "rate_limit_error", "queue_full", None, "rate_limit_error"),
        (QueueTimeout("late"), 503, "overloaded_error", "queue_timeout", None, "overloaded_error"),
        (Unavailable("down"), 503, "overloaded_error", "service_unavailable", None, "overloaded_error"),
        (EngineFault("broke"), 500, "server_error", "server_error", None, "api_error"),
        (EngineDied("gone"), 503, "server_error", "engine_unavailable", None, "overloaded_error"),
        (TurnTimeout(5.0), 504, "server_error", "turn_timeout", None, "timeout_error"),
        (ConfigError("x"), 500, "server_error", "server_error", None, "api_error"),
        (SessionBusy("x"), 500, "server_error", "server_error", None, "api_error"),
        (KeyError("x"), 500, "server_error", "server_error", None, "api_error"),
    ],
)
def test_each_error_has_its_place(
    error: Exception, status: int, openai: str, code: str | None, param: str | None, anthropic: str
) -> None:
    told = wire_error(error)
    assert (told.status, told.openai_type, told.code, told.param) == (status, openai, code, param)
    assert told.anthropic_type == anthropic
    assert (told.retry_after_s is not None) == (status in (429, 503))


def test_a_bug_is_told_nothing_of() -> None:
    for error in (SessionBusy("session 5"), KeyError("secret"), ConfigError("/etc/x")):
        assert wire_error(error).message == INTERNAL_MESSAGE


def test_the_overflow_wording_clients_look_for() -> None:
    assert wire_error(ContextOverflow(9, 8)).anthropic_message == "prompt is too long: 9 tokens > 8 maximum"


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/responses", {"input": "hi"}),
        ("/v1/messages", {"max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}),
    ],
)
async def test_a_full_queue_is_a_429_with_retry_after(path: str, fields: dict[str, Any], stream: bool) -> None:
    turns = FakeTurns(refusal=FULL)
    async with edge_client(turns) as client:
        got = await client.post(path, json={"model": MODEL, "stream": stream, **fields})
    assert (got.status_code, got.headers["retry-after"]) == (429, "9")
    assert got.json()["error"]["type"] == "rate_limit_error"
    assert "3 waiting + 1 permits" in got.json()["error"]["message"]


async def test_the_permit_comes_before_validation() -> None:
    """A full queue is told even to a request that would be refused: admission looks at nothing but the model."""
    async with edge_client(FakeTurns(refusal=FULL)) as client:
        got = await client.post("/v1/messages", json={"model": MODEL})
    assert got.status_code == 429


async def test_a_permit_goes_back_when_the_turn_does_not_start() -> None:
    turns = FakeTurns(start_error=Unavailable("draining"))
    async with edge_client(turns) as client:
        got = await client.post("/v1/responses", json={"model": MODEL, "input": "hi"})
    assert (got.status_code, len(turns.permits), turns.open_permits) == (503, 1, 0)
