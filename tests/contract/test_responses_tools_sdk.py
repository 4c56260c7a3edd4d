"""The official openai package against a live server: Responses with tools, reasoning, structured output and sockets."""

from __future__ import annotations

import json
from typing import Any

import httpx
import openai
import pytest
from openai.types.responses import FunctionToolParam, ResponseFunctionToolCall, ResponseInputItemParam
from pydantic import BaseModel
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from support import strict
from support.server import LiveServer, live_server

pytestmark = pytest.mark.live
MODEL = "simulated"
WEATHER: FunctionToolParam = {
    "type": "function",
    "name": "get_weather",
    "description": "weather",
    "parameters": {"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]},
    "strict": False,
}
ONE = 'USE_TOOL:get_weather {"location": "Zürich 🌧"}'
THREE = "\n".join(f'USE_TOOL:get_weather {{"location": "{city}"}}' for city in ("Bern", "Oslo", "東京"))


class Answer(BaseModel):
    answer: str


@pytest.fixture
def client(server: LiveServer) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.base_url}/v1", api_key="x", max_retries=0)


def calls_of(answer: Any) -> list[ResponseFunctionToolCall]:
    return [item for item in answer.output if item.type == "function_call"]


@pytest.mark.parametrize(("asked", "cities"), [(ONE, ["Zürich 🌧"]), (THREE, ["Bern", "Oslo", "東京"])])
def test_the_stream_helper_and_the_whole_answer_agree(client: openai.OpenAI, asked: str, cities: list[str]) -> None:
    with client.responses.stream(model=MODEL, input=asked, tools=[WEATHER]) as stream:
        deltas = "".join(e.delta for e in stream if e.type == "response.function_call_arguments.delta")
        final = stream.get_final_response()
    whole = client.responses.create(model=MODEL, input=asked, tools=[WEATHER])
    for answer in (final, whole):
        assert [json.loads(call.arguments)["location"] for call in calls_of(answer)] == cities
        assert len({call.call_id for call in calls_of(answer)}) == len(cities)
    assert deltas == "".join(call.arguments for call in calls_of(final))
    again = client.responses.retrieve(whole.id)
    assert again.output == whole.output
    assert again.tools == whole.tools


def test_results_in_one_request_are_used_and_one_of_two_is_refused(client: openai.OpenAI) -> None:
    first = client.responses.create(model=MODEL, input=THREE, tools=[WEATHER])
    results: list[ResponseInputItemParam] = [
        {"type": "function_call_output", "call_id": call.call_id, "output": f"{n}"}
        for n, call in enumerate(calls_of(first))
    ]
    with pytest.raises(openai.BadRequestError, match=calls_of(first)[2].call_id):
        client.responses.create(model=MODEL, input=results[:2], previous_response_id=first.id, tools=[WEATHER])
    answer = client.responses.create(model=MODEL, input=results, previous_response_id=first.id, tools=[WEATHER])
    assert answer.output_text.startswith("tool said: ")
    items = client.responses.input_items.list(answer.id, order="asc").data
    kinds = [item.type for item in items]
    assert kinds == ["message", *["function_call"] * 3, *["function_call_output"] * 3]


def test_our_own_output_fed_back_is_warm(client: openai.OpenAI) -> None:
    dialogue: list[Any] = [{"role": "user", "content": f"THINK:let me see\n{ONE}"}]
    kwargs: Any = {"store": False, "tools": [WEATHER], "include": ["reasoning.encrypted_content"]}
    kwargs["prompt_cache_key"] = "a dialogue of its own"
    first = client.responses.create(model=MODEL, input=dialogue, **kwargs)
    assert [item.type for item in first.output] == ["reasoning", "function_call"]
    dialogue += [item.model_dump(exclude_none=True, exclude={"id", "status"}) for item in first.output]
    dialogue.append({"type": "function_call_output", "call_id": calls_of(first)[0].call_id, "output": "rain"})
    second = client.responses.create(model=MODEL, input=dialogue, **kwargs)
    assert second.output_text == "tool said: rain"
    assert first.usage is not None
    assert second.usage is not None
    held = first.usage.input_tokens + first.usage.output_tokens - 1
    assert second.usage.input_tokens_details.cached_tokens >= held * 0.9


def test_reasoning_is_streamed_counted_and_kept_out_of_the_text(client: openai.OpenAI) -> None:
    with client.responses.stream(
        model=MODEL, input="THINK:let me see\nEMIT:done", reasoning={"effort": "low", "summary": "auto"}
    ) as stream:
        thought = "".join(e.delta for e in stream if e.type == "response.reasoning_summary_text.delta")
        final = stream.get_final_response()
    assert (thought, final.output_text) == ("let me see", "done")
    assert final.usage is not None
    assert final.usage.output_tokens_details.reasoning_tokens > 0
    assert final.reasoning is not None
    assert (final.reasoning.effort, final.reasoning.summary) == ("low", "auto")


def test_parse_gives_the_model_its_schema_asks_for(client: openai.OpenAI) -> None:
    parsed = client.responses.parse(model=MODEL, input='EMIT:{"answer":"4"}', text_format=Answer)
    assert parsed.output_parsed == Answer(answer="4")
    with client.responses.stream(model=MODEL, input='EMIT:{"answer":"4"}', text_format=Answer) as stream:
        final = stream.get_final_response()
    assert final.output_parsed == Answer(answer="4")


def test_a_schema_holds_what_follows_the_thoughts(client: openai.OpenAI) -> None:
    asked = 'THINK:let me see\nEMIT:{"answer":"4"}'
    with client.responses.stream(
        model=MODEL, input=asked, text_format=Answer, tools=[WEATHER], reasoning={"effort": "low"}
    ) as stream:
        final = stream.get_final_response()
    assert [item.type for item in final.output] == ["reasoning", "message"]
    assert final.output_parsed == Answer(answer="4")


def test_tools_of_other_kinds_leave_the_functions_usable(http: httpx.Client) -> None:
    kinds = ["web_search", "custom", "namespace", "local_shell", "mcp"]
    tools = [WEATHER, *({"type": kind, "name": "x"} for kind in kinds)]
    answer = http.post("/v1/responses", json={"model": MODEL, "input": ONE, "tools": tools})
    assert answer.status_code == 200
    assert [item["type"] for item in answer.json()["output"]] == ["function_call"]
    assert all(kind in answer.headers["x-warmlane-warnings"] for kind in kinds)


def test_a_call_that_is_cut_is_incomplete_and_not_lost(http: httpx.Client) -> None:
    body = {"model": MODEL, "input": ONE, "tools": [WEATHER], "max_output_tokens": 60}
    with http.stream("POST", "/v1/responses", json={**body, "stream": True}) as response:
        events = strict.sse(response)
    strict.response_stream(events)
    final = events[-1]["response"]
    assert final["status"] == "incomplete"
    assert final["output"][-1]["status"] == "incomplete"


def test_a_compaction_is_smaller_and_goes_on(client: openai.OpenAI) -> None:
    dialogue: list[Any] = []
    for n in range(10):
        dialogue += [
            {"role": "user", "content": f"question {n}"},
            {"role": "assistant", "content": f"answer {n} " * 20},
            {"role": "developer", "content": "stay brief " * 10},
        ]
    compacted = client.responses.compact(model=MODEL, input=dialogue)
    assert [item.type for item in compacted.output].count("compaction") == 1
    items: list[Any] = [item.to_dict(exclude_none=True, warnings=False) for item in compacted.output]
    assert len(json.dumps(items)) < len(json.dumps(dialogue))
    answer = client.responses.create(model=MODEL, input=[*items, {"role": "user", "content": "go on"}])
    assert answer.output_text == "echo: go on"


def test_the_sdks_own_socket(client: openai.OpenAI) -> None:
    with client.responses.connect() as connection:
        connection.response.create(model=MODEL, input="hello", store=False)
        first = _until_done(connection)
        connection.response.create(model=MODEL, input="more", store=False, previous_response_id=first.id)
        second = _until_done(connection)
        connection.response.create(model=MODEL, input=ONE, tools=[WEATHER], store=False)
        called = _until_done(connection)
    assert (first.output_text, second.output_text) == ("echo: hello", "echo: more")
    assert [call.name for call in calls_of(called)] == ["get_weather"]


def _until_done(connection: Any) -> Any:
    for event in connection:
        assert event.type != "error", event
        if event.type == "response.completed":
            return event.response
    raise AssertionError("the socket was closed")


def test_sockets_of_a_server_that_stops_are_told_so() -> None:
    with (
        live_server("--engine", "simulated") as server,
        connect(server.base_url.replace("http", "ws", 1) + "/v1/responses") as socket,
    ):
        socket.send(json.dumps({"type": "response.create", "model": MODEL, "input": "hi"}))
        while json.loads(socket.recv(timeout=30))["type"] != "response.completed":
            pass
        assert server.stop() == 0
        with pytest.raises(ConnectionClosed) as closed:
            socket.recv(timeout=30)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1001
