"""The official openai package against a live server: tools, structured output and reasoning over Chat Completions."""

from __future__ import annotations

import json
from typing import Any

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam
from pydantic import BaseModel

from support import strict
from support.server import LiveServer

pytestmark = pytest.mark.live
MODEL = "simulated"
WEATHER: ChatCompletionToolParam = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather somewhere.",
        "parameters": {
            "type": "object",
            "properties": {"location": {"type": "string"}},
            "required": ["location"],
            "additionalProperties": False,
        },
        "strict": True,
    },
}
ONE = 'USE_TOOL:get_weather {"location": "Zürich 🌧"}'
PLACES = ["Bern", "Oslo", "東京"]
THREE = "\n".join(f'USE_TOOL:get_weather {{"location": "{place}"}}' for place in PLACES)


@pytest.fixture
def client(server: LiveServer) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.base_url}/v1", api_key="x", max_retries=0)


CHOICES: list[Any] = [
    "auto",
    "required",
    {"type": "function", "function": {"name": "get_weather"}},
    {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [WEATHER]}},
]


@pytest.mark.parametrize("choice", CHOICES)
def test_a_call_and_its_result(client: openai.OpenAI, choice: Any) -> None:
    said: list[ChatCompletionMessageParam] = [{"role": "user", "content": ONE}]
    first = client.chat.completions.create(model=MODEL, tools=[WEATHER], tool_choice=choice, messages=said)
    strict.completion(first.model_dump(mode="json"))
    reply = first.choices[0]
    assert (reply.finish_reason, reply.message.content) == ("tool_calls", None)
    assert reply.message.tool_calls is not None
    (call,) = reply.message.tool_calls
    assert call.type == "function"
    assert (call.function.name, json.loads(call.function.arguments)) == ("get_weather", {"location": "Zürich 🌧"})
    said += [
        {"role": "assistant", "content": None, "tool_calls": [call.to_dict()]},  # type: ignore[typeddict-item]
        {"role": "tool", "tool_call_id": call.id, "content": [{"type": "text", "text": "sun"}]},
    ]
    second = client.chat.completions.create(model=MODEL, tools=[WEATHER], messages=said)
    assert second.choices[0].message.content == "tool said: sun"
    assert first.usage is not None
    assert second.usage is not None
    assert second.usage.prompt_tokens_details is not None
    held = first.usage.total_tokens - 1
    assert (second.usage.prompt_tokens_details.cached_tokens or 0) >= held


def test_the_stream_helper_builds_every_call(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(
        model=MODEL, tools=[WEATHER], messages=[{"role": "user", "content": THREE}]
    ) as stream:
        done = [event for event in stream if event.type == "tool_calls.function.arguments.done"]
        final = stream.get_final_completion()
    assert [json.loads(event.arguments) for event in done] == [{"location": place} for place in PLACES]
    calls = final.choices[0].message.tool_calls or []
    assert [json.loads(call.function.arguments)["location"] for call in calls] == PLACES
    assert len({call.id for call in calls}) == 3
    assert final.choices[0].finish_reason == "tool_calls"


def test_every_chunk_of_a_call_is_strictly_typed_and_ordered(http: httpx.Client) -> None:
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": THREE}],
        "tools": [WEATHER],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    with http.stream("POST", "/v1/chat/completions", json=body) as response:
        chunks = strict.sse(response)
    strict.completion_stream(chunks, usage=True)
    deltas = [call for chunk in chunks for c in chunk["choices"] for call in c["delta"].get("tool_calls", ())]
    for index, place in enumerate(PLACES):
        own = [delta for delta in deltas if delta["index"] == index]
        assert (own[0]["type"], own[0]["function"]["name"]) == ("function", "get_weather")
        assert all("id" not in delta and "name" not in delta["function"] for delta in own[1:])
        assert json.loads("".join(delta["function"]["arguments"] for delta in own)) == {"location": place}


def test_one_call_where_only_one_is_wanted(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL,
        tools=[WEATHER],
        tool_choice="required",
        parallel_tool_calls=False,
        messages=[{"role": "user", "content": THREE}],
    )
    assert len(answer.choices[0].message.tool_calls or []) == 1


class Answer(BaseModel):
    why: str
    answer: int


def test_structured_output_is_parsed(client: openai.OpenAI) -> None:
    answer = client.chat.completions.parse(
        model=MODEL,
        response_format=Answer,
        messages=[{"role": "user", "content": 'EMIT:{"why": "so", "answer": 42}'}],
    )
    assert answer.choices[0].message.parsed == Answer(why="so", answer=42)


@pytest.mark.parametrize("stream", [False, True])
def test_reasoning_is_apart_from_the_answer_and_counted(http: httpx.Client, stream: bool) -> None:
    body: dict[str, Any] = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "THINK:let me see\nEMIT:done"}],
        "reasoning_effort": "low",
    }
    if stream:
        extra = {"stream": True, "stream_options": {"include_usage": True}}
        with http.stream("POST", "/v1/chat/completions", json=body | extra) as response:
            chunks = strict.sse(response)
        told = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
        usage = chunks[-1]["usage"]
    else:
        answer = http.post("/v1/chat/completions", json=body).json()
        strict.completion(answer)
        told, usage = [answer["choices"][0]["message"]], answer["usage"]
    assert "".join(delta.get("reasoning_content") or "" for delta in told).strip() == "let me see"
    assert "".join(delta.get("content") or "" for delta in told).strip() == "done"
    assert 0 < usage["completion_tokens_details"]["reasoning_tokens"] < usage["completion_tokens"]


@pytest.mark.parametrize("stream", [False, True])
def test_log_probabilities_are_of_the_text(http: httpx.Client, stream: bool) -> None:
    body: dict[str, Any] = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "hé"}],
        "logprobs": True,
        "top_logprobs": 2,
    }
    if stream:
        with http.stream("POST", "/v1/chat/completions", json=body | {"stream": True}) as response:
            chunks = strict.sse(response)
        strict.completion_stream(chunks, usage=False)
        told = [c["logprobs"] for chunk in chunks for c in chunk["choices"] if c["logprobs"]]
        tokens = [token for logprobs in told for token in logprobs["content"]]
    else:
        answer = http.post("/v1/chat/completions", json=body).json()
        strict.completion(answer)
        tokens = answer["choices"][0]["logprobs"]["content"]
    assert bytes(byte for token in tokens for byte in token["bytes"]).decode() == "echo: hé"
    assert all(token["logprob"] <= 0 for token in tokens)
