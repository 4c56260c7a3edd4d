"""A turn that runs longer than `--turn-timeout-s`: one named error in each dialect, and no SDK asks again by itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx
import openai
import pytest

from support.dialects import PATHS, body_of, told
from support.server import LiveServer, live_server

pytestmark = pytest.mark.live
MODEL = "simulated"
LONG = "SLOW:1000 " + "x" * 600
MESSAGE = "The turn took longer than 0.5 s, which is the longest this server lets one run."
DIALECTS = pytest.mark.parametrize("name", PATHS)


@pytest.fixture(scope="module")
def hurried() -> Iterator[LiveServer]:
    with live_server("--engine", "simulated", "--turn-timeout-s", "0.5") as server:
        yield server


@pytest.fixture
def client(hurried: LiveServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=hurried.base_url, timeout=60) as made:
        yield made


@DIALECTS
def test_a_whole_answer_is_a_504(client: httpx.Client, name: str) -> None:
    got = client.post(PATHS[name], json=body_of(name, [("user", LONG)]))
    assert (got.status_code, got.headers["x-should-retry"]) == (504, "false")
    error = got.json()["error"]
    if name == "messages":
        assert error == {"type": "timeout_error", "message": MESSAGE}
    else:
        assert error == {"type": "server_error", "code": "turn_timeout", "param": None, "message": MESSAGE}
    assert told(name, client.post(PATHS[name], json=body_of(name, [("user", "hi")]))).text == "echo: hi"


@DIALECTS
def test_a_stream_ends_in_the_dialects_error_once(client: httpx.Client, name: str) -> None:
    body = body_of(name, [("user", LONG)], stream=True)
    with client.stream("POST", PATHS[name], json=body) as response:
        assert response.status_code == 200
        events = [json.loads(line[6:]) for line in response.iter_lines() if line.startswith("data: {")]
    told_of = [event for event in events if _is_error(name, event)]
    (error,) = told_of
    if name == "messages":
        assert error["error"] == {"type": "timeout_error", "message": MESSAGE}
        assert events[-1] is error
    elif name == "chat":
        assert (error["error"]["code"], error["error"]["message"]) == ("turn_timeout", MESSAGE)
        assert events[-1] is error
    else:
        assert (error["code"], error["message"]) == ("turn_timeout", MESSAGE)
        assert [event["type"] for event in events[-2:]] == ["error", "response.failed"]
        assert events[-1]["response"]["error"]["message"] == MESSAGE
        assert events[-1]["response"]["usage"]["output_tokens"] >= 0


def _is_error(name: str, event: Any) -> bool:
    return "error" in event if name == "chat" else event["type"] == "error"


def test_the_sdks_raise_it_at_once_and_do_not_ask_again(hurried: LiveServer) -> None:
    asked: list[object] = []
    hooks = {"request": [asked.append]}
    with openai.DefaultHttpxClient(event_hooks=hooks) as http:
        chat = openai.OpenAI(base_url=f"{hurried.base_url}/v1", api_key="x", http_client=http, max_retries=3)
        with pytest.raises(openai.InternalServerError) as failed:
            chat.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": LONG}])
    assert (failed.value.status_code, failed.value.code) == (504, "turn_timeout")
    with anthropic.DefaultHttpxClient(event_hooks=hooks) as http:
        claude = anthropic.Anthropic(base_url=hurried.base_url, api_key="x", http_client=http, max_retries=3)
        with pytest.raises(anthropic.GatewayTimeoutError) as late:
            claude.messages.create(model=MODEL, max_tokens=900, messages=[{"role": "user", "content": LONG}])
    assert late.value.type == "timeout_error"
    assert len(asked) == 2
