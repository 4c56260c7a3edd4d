"""The cases of the public Open Responses compliance suite, in our own words, against a live server.

The suite starts all of its cases at once; `test_all_at_once` does the same.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from openresponses_types import types as open_responses
from websockets.sync.client import ClientConnection, connect

from support import strict
from support.server import LiveServer

pytestmark = pytest.mark.live
MODEL = "simulated"
N_AT_ONCE = 17
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the current weather for a location",
    "parameters": {
        "type": "object",
        "properties": {"location": {"type": "string", "description": "The city, e.g. San Francisco"}},
        "required": ["location"],
    },
}
PNG = base64.b64encode(
    bytes.fromhex(
        "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c489"
        "0000000d49444154789c63f8cfc0f01f0005000201ff5e3b3b0000000049454e44ae426082"
    )
).decode()


def user(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": text}


def create(http: httpx.Client, **fields: Any) -> dict[str, Any]:
    answer = http.post("/v1/responses", json={"model": MODEL, **fields})
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    strict.response(body)
    assert body["status"] == "completed"
    assert body["output"]
    return body


def text_of(response: dict[str, Any]) -> str:
    return "".join(part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"])


class Wire:
    """One WebSocket to the server."""

    def __init__(self, base_url: str) -> None:
        self._url = base_url.replace("http", "ws", 1) + "/v1/responses"
        self._connection: ClientConnection | None = None

    def __enter__(self) -> Wire:
        self._connection = connect(self._url, additional_headers={"Authorization": "Bearer x"})
        return self

    def __exit__(self, *_: object) -> None:
        assert self._connection is not None
        self._connection.close()

    def send(self, **fields: Any) -> list[dict[str, Any]]:
        """The events of one turn, up to its last."""
        assert self._connection is not None
        self._connection.send(json.dumps({"type": "response.create", "model": MODEL, **fields}))
        events: list[dict[str, Any]] = []
        while not events or events[-1]["type"] not in (*strict.TERMINALS, "error"):
            events.append(json.loads(self._connection.recv(timeout=60)))
        return events

    def response(self, **fields: Any) -> dict[str, Any]:
        events = self.send(**fields)
        strict.response_stream(events)
        response: dict[str, Any] = events[-1]["response"]
        assert response["status"] == "completed"
        strict.response(response)
        return response

    def refused(self, **fields: Any) -> dict[str, Any]:
        events = self.send(**fields)
        assert len(events) == 1
        open_responses.WebSocketErrorEvent.model_validate(events[0])
        error: dict[str, Any] = events[0]["error"]
        return error


def basic_response(server: LiveServer, http: httpx.Client) -> None:
    body = create(http, input=[user("Say hello in exactly 3 words.")])
    assert text_of(body) == "echo: Say hello in exactly 3 words."


def assistant_history_with_phase(server: LiveServer, http: httpx.Client) -> None:
    said = {"type": "message", "role": "assistant", "phase": "commentary", "content": "I am thinking of it."}
    final = {
        **said,
        "phase": "final_answer",
        "content": [{"type": "output_text", "text": "It is 4.", "annotations": []}],
    }
    assert text_of(create(http, input=[user("2 + 2?"), said, final, user("and 3 + 3?")])) == "echo: and 3 + 3?"


def output_phase(server: LiveServer, http: httpx.Client) -> None:
    for item in create(http, input=[user("hi")])["output"]:
        assert item.get("phase") in (None, "commentary", "final_answer")
        open_responses.Message.model_validate(item)


def streaming_response(server: LiveServer, http: httpx.Client) -> None:
    with http.stream(
        "POST", "/v1/responses", json={"model": MODEL, "input": [user("Count to 5")], "stream": True}
    ) as got:
        events = strict.sse(got)
    assert strict.response_stream(events).output_text == "echo: Count to 5"
    assert events[-1]["type"] == "response.completed"


def websocket_response(server: LiveServer, http: httpx.Client) -> None:
    with Wire(server.base_url) as wire:
        assert text_of(wire.response(input=[user("hello")], store=False)) == "echo: hello"


def websocket_sequential_responses(server: LiveServer, http: httpx.Client) -> None:
    with Wire(server.base_url) as wire:
        one, two = wire.response(input=[user("one")]), wire.response(input=[user("two")])
    assert one["id"] != two["id"]
    assert (text_of(one), text_of(two)) == ("echo: one", "echo: two")


def websocket_continuation(server: LiveServer, http: httpx.Client) -> None:
    with Wire(server.base_url) as wire:
        first = wire.response(input=[user("Remember: blue.")], store=False)
        second = wire.response(input=[user("Which?")], store=False, previous_response_id=first["id"])
    assert second["previous_response_id"] == first["id"]
    held = first["usage"]["input_tokens"] + first["usage"]["output_tokens"] - 1
    assert second["usage"]["input_tokens"] > held
    assert http.get(f"/v1/responses/{first['id']}").status_code == 404


def websocket_reconnect_recovers(server: LiveServer, http: httpx.Client) -> None:
    with Wire(server.base_url) as wire:
        first = wire.response(input=[user("one")], store=False)
    with Wire(server.base_url) as wire:
        error = wire.refused(input=[user("two")], store=False, previous_response_id=first["id"])
        assert error["code"] == "previous_response_not_found"
        whole = wire.response(input=[user("one"), *first["output"], user("two")], store=False)
    assert text_of(whole) == "echo: two"


def websocket_previous_response_not_found(server: LiveServer, http: httpx.Client) -> None:
    with Wire(server.base_url) as wire:
        error = wire.refused(input=[user("x")], previous_response_id="resp_" + "0" * 48)
        assert (error["code"], error["param"]) == ("previous_response_not_found", "previous_response_id")
        wire.response(input=[user("still here")])


def websocket_failed_continuation_evicts(server: LiveServer, http: httpx.Client) -> None:
    with Wire(server.base_url) as wire:
        first = wire.response(input=[user("one")], store=False)
        unknown = {"type": "function_call_output", "call_id": "call_unknown", "output": "x"}
        error = wire.refused(input=[unknown], store=False, previous_response_id=first["id"])
        assert "call_unknown" in error["message"]
        error = wire.refused(input=[user("two")], store=False, previous_response_id=first["id"])
        assert error["code"] == "previous_response_not_found"


def websocket_compact_starts_a_new_chain(server: LiveServer, http: httpx.Client) -> None:
    with Wire(server.base_url) as wire:
        first = wire.response(input=[user("one")], store=False)
        compact = http.post(
            "/v1/responses/compact", json={"model": MODEL, "input": [user("one"), *first["output"]]}
        ).json()
        second = wire.response(input=[*compact["output"], user("two")], store=False)
        third = wire.response(input=[user("three")], store=False, previous_response_id=second["id"])
    assert second["previous_response_id"] is None
    assert text_of(third) == "echo: three"


def system_prompt(server: LiveServer, http: httpx.Client) -> None:
    system = {"type": "message", "role": "system", "content": "You are a pirate."}
    assert text_of(create(http, input=[system, user("Say hello.")])) == "echo: Say hello."


def tool_calling(server: LiveServer, http: httpx.Client) -> None:
    asked = user('USE_TOOL:get_weather {"location": "San Francisco"}')
    body = create(http, input=[asked], tools=[WEATHER])
    call = next(item for item in body["output"] if item["type"] == "function_call")
    assert (call["name"], json.loads(call["arguments"])) == ("get_weather", {"location": "San Francisco"})
    assert body["tools"] == [{**WEATHER, "strict": None}]


def image_input(server: LiveServer, http: httpx.Client) -> None:
    content = [
        {"type": "input_text", "text": "What is this?"},
        {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"},
    ]
    answer = http.post("/v1/responses", json={"model": MODEL, "input": [{**user(""), "content": content}]})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "input[0].content[1].type"


def multi_turn(server: LiveServer, http: httpx.Client) -> None:
    said = {"type": "message", "role": "assistant", "content": "Hello Alice!"}
    assert text_of(create(http, input=[user("I am Alice."), said, user("Who am I?")])) == "echo: Who am I?"


def compact_response(server: LiveServer, http: httpx.Client) -> None:
    answer = http.post("/v1/responses/compact", json={"model": MODEL, "input": [user("one"), user("two")]})
    body = answer.json()
    assert (answer.status_code, body["object"]) == (200, "response.compaction")
    items = [item for item in body["output"] if item["type"] == "compaction"]
    assert len(items) == 1
    open_responses.CompactionBody.model_validate(items[0])
    open_responses.Usage.model_validate(body["usage"])


def compact_without_model(server: LiveServer, http: httpx.Client) -> None:
    answer = http.post("/v1/responses/compact", json={"input": [user("one")]})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "model")


def previous_response_id(server: LiveServer, http: httpx.Client) -> None:
    first = create(http, input=[user("one")])
    second = create(http, input=[user("two")], previous_response_id=first["id"])
    assert second["usage"]["input_tokens"] > first["usage"]["input_tokens"] + first["usage"]["output_tokens"] - 1


def function_call_round_trip(server: LiveServer, http: httpx.Client) -> None:
    asked = user('USE_TOOL:get_weather {"location": "Bern"}')
    choice = {"type": "function", "name": "get_weather"}
    first = create(http, input=[asked], tools=[WEATHER], tool_choice=choice)
    call = next(item for item in first["output"] if item["type"] == "function_call")
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "rain"}
    whole = create(http, input=[asked, *first["output"], result], tools=[WEATHER])
    chained = create(http, input=[result], tools=[WEATHER], previous_response_id=first["id"])
    assert text_of(whole) == text_of(chained) == "tool said: rain"


def file_input(server: LiveServer, http: httpx.Client) -> None:
    content = [{"type": "input_file", "filename": "a.txt", "file_data": "data:text/plain;base64,aGk="}]
    answer = http.post("/v1/responses", json={"model": MODEL, "input": [{**user(""), "content": content}]})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "input[0].content[0].type")


Case = Callable[[LiveServer, httpx.Client], None]
CASES: tuple[Case, ...] = (
    basic_response,
    assistant_history_with_phase,
    output_phase,
    streaming_response,
    websocket_response,
    websocket_sequential_responses,
    websocket_continuation,
    websocket_reconnect_recovers,
    websocket_previous_response_not_found,
    websocket_failed_continuation_evicts,
    websocket_compact_starts_a_new_chain,
    system_prompt,
    tool_calling,
    image_input,
    multi_turn,
    compact_response,
    compact_without_model,
    previous_response_id,
    function_call_round_trip,
    file_input,
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_case(case: Case, server: LiveServer, http: httpx.Client) -> None:
    case(server, http)


def test_all_at_once(server: LiveServer) -> None:
    def run(case: Case) -> None:
        with httpx.Client(base_url=server.base_url, timeout=60) as client:
            case(server, client)

    # A flat server has a seat and sixteen places to wait. Its unstored responses are warm one at a time; sockets go on
    # from what they keep themselves.
    with ThreadPoolExecutor(N_AT_ONCE) as pool:
        for done in [pool.submit(run, case) for case in CASES[:N_AT_ONCE]]:
            done.result()
