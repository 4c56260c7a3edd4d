"""The official anthropic package against a live server: tools, thinking and what a client sends back of them."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import httpx
import pytest
from anthropic import beta_tool
from anthropic.types import MessageParam, ToolParam, ToolResultBlockParam

from support import strict
from support.server import LiveServer

pytestmark = pytest.mark.live
MODEL = "claude-sonnet-5"
SERVED = "simulated"
WEATHER: ToolParam = {
    "name": "get_weather",
    "description": "The weather somewhere.",
    "input_schema": {
        "type": "object",
        "properties": {"location": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["location"],
    },
}
TIME: ToolParam = {"name": "get_time", "input_schema": {"type": "object", "properties": {}}}
ONE = 'USE_TOOL:get_weather {"location": "Zürich 🌧", "days": 2}'
THREE = "\n".join(f'USE_TOOL:get_weather {{"location": "{city}"}}' for city in ("Bern", "Oslo", "東京"))
PLACES = ["Bern", "Oslo", "東京"]


@pytest.fixture
def client(server: LiveServer) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=server.base_url, api_key="x", max_retries=0)


def prompt_tokens(usage: anthropic.types.Usage) -> int:
    return usage.input_tokens + (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0)


def results_of(answer: anthropic.types.Message) -> list[ToolResultBlockParam]:
    """A result for each call, the last call's first."""
    calls = [block for block in answer.content if block.type == "tool_use"]
    results: list[ToolResultBlockParam] = [
        {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": f"sun at {index}"}]}
        for index, call in enumerate(calls)
    ]
    return results[::-1]


@pytest.mark.parametrize("choice", [None, {"type": "any"}, {"type": "tool", "name": "get_weather"}])
def test_a_call_and_its_result(client: anthropic.Anthropic, choice: Any) -> None:
    said: list[MessageParam] = [{"role": "user", "content": ONE}]
    extra = {} if choice is None else {"tool_choice": choice}
    first = client.messages.create(model=MODEL, max_tokens=500, tools=[WEATHER, TIME], messages=said, **extra)
    strict.message(first.model_dump(mode="json"))
    assert (first.model, first.stop_reason) == (SERVED, "tool_use")
    (call,) = [block for block in first.content if block.type == "tool_use"]
    assert (call.name, call.input) == ("get_weather", {"location": "Zürich 🌧", "days": 2})
    said += [{"role": "assistant", "content": first.content}, {"role": "user", "content": results_of(first)}]
    second = client.messages.create(model=MODEL, max_tokens=500, tools=[TIME, WEATHER], messages=said)
    assert second.content[0].type == "text"
    assert second.content[0].text == "tool said: sun at 0"
    assert second.stop_reason == "end_turn"
    held = prompt_tokens(first.usage) + first.usage.output_tokens - 1
    assert (second.usage.cache_read_input_tokens or 0) >= held


def test_the_stream_helper_builds_every_call(client: anthropic.Anthropic) -> None:
    said: list[MessageParam] = [{"role": "user", "content": THREE}]
    with client.messages.stream(model=MODEL, max_tokens=900, tools=[WEATHER], messages=said) as stream:
        pieces = [event.partial_json for event in stream if event.type == "input_json"]
        final = stream.get_final_message()
    calls = [block for block in final.content if block.type == "tool_use"]
    assert [call.input for call in calls] == [{"location": place} for place in PLACES]
    assert len({call.id for call in calls}) == 3
    assert final.stop_reason == "tool_use"
    assert len(pieces) > 3
    said += [{"role": "assistant", "content": final.content}, {"role": "user", "content": results_of(final)}]
    with client.messages.stream(model=MODEL, max_tokens=900, tools=[WEATHER], messages=said) as stream:
        text = "".join(stream.text_stream)
    assert text.startswith("tool said: ")


def test_one_call_where_only_one_is_wanted(client: anthropic.Anthropic) -> None:
    answer = client.messages.create(
        model=MODEL,
        max_tokens=900,
        tools=[WEATHER],
        tool_choice={"type": "any", "disable_parallel_tool_use": True},
        messages=[{"role": "user", "content": THREE}],
    )
    assert [block.type for block in answer.content].count("tool_use") == 1


def test_no_call_where_none_is_wanted(client: anthropic.Anthropic) -> None:
    answer = client.messages.create(
        model=MODEL,
        max_tokens=100,
        tools=[WEATHER],
        tool_choice={"type": "none"},
        messages=[{"role": "user", "content": "hello"}],
    )
    assert [block.type for block in answer.content] == ["text"]


def test_the_beta_tool_runner_goes_through_a_whole_turn(client: anthropic.Anthropic) -> None:
    asked: list[str] = []

    @beta_tool
    def get_weather(location: str) -> str:
        """The weather somewhere."""
        asked.append(location)
        return f"sun over {location}"

    runner = client.beta.messages.tool_runner(
        model=MODEL,
        max_tokens=500,
        tools=[get_weather],
        messages=[{"role": "user", "content": 'USE_TOOL:get_weather {"location": "Bern"}'}],
    )
    final = runner.until_done()
    assert asked == ["Bern"]
    assert final.content[0].type == "text"
    assert final.content[0].text == "tool said: sun over Bern"


def test_thinking_is_signed_and_taken_back(client: anthropic.Anthropic) -> None:
    said: list[MessageParam] = [{"role": "user", "content": "THINK:let me see\nEMIT:done"}]
    with client.messages.stream(
        model=MODEL, max_tokens=2048, thinking={"type": "enabled", "budget_tokens": 1024}, messages=said
    ) as stream:
        final = stream.get_final_message()
    thought, text = final.content
    assert (thought.type, text.type) == ("thinking", "text")
    assert thought.type == "thinking"
    assert (thought.thinking.strip(), bool(thought.signature)) == ("let me see", True)
    details = final.usage.output_tokens_details
    assert details is not None
    assert 0 < details.thinking_tokens < final.usage.output_tokens
    said += [{"role": "assistant", "content": final.content}, {"role": "user", "content": "more"}]
    raw = client.messages.with_raw_response.create(
        model=MODEL, max_tokens=100, thinking={"type": "adaptive"}, messages=said
    )
    assert "x-warmlane-warnings" not in raw.headers


@pytest.mark.parametrize("streamed", [False, True])
def test_thinking_that_is_not_shown_is_taken_back_all_the_same(client: anthropic.Anthropic, streamed: bool) -> None:
    said: list[MessageParam] = [{"role": "user", "content": "THINK:let me see\nEMIT:done"}]
    thinking: dict[str, Any] = {"type": "enabled", "budget_tokens": 1024, "display": "omitted"}
    fields: dict[str, Any] = {"model": MODEL, "max_tokens": 2048, "thinking": thinking}
    if streamed:
        with client.messages.stream(messages=said, **fields) as stream:
            final = stream.get_final_message()
    else:
        final = client.messages.create(messages=said, **fields)
    thought = final.content[0]
    assert thought.type == "thinking"
    assert (thought.thinking, bool(thought.signature)) == ("", True)
    said += [{"role": "assistant", "content": final.content}, {"role": "user", "content": "more"}]
    raw = client.messages.with_raw_response.create(messages=said, **fields)
    assert "signature" not in raw.headers.get("x-warmlane-warnings", "")
    shown: list[MessageParam] = [
        said[0],
        {
            "role": "assistant",
            "content": [{"type": "thinking", "thinking": "let me see", "signature": ""}, final.content[1]],
        },
        said[2],
    ]
    counts = [client.messages.count_tokens(model=MODEL, messages=each).input_tokens for each in (said, shown)]
    assert counts[0] == counts[1]


def test_a_thought_ends_with_its_budget(client: anthropic.Anthropic) -> None:
    answer = client.messages.create(
        model=MODEL,
        max_tokens=2048,
        thinking={"type": "enabled", "budget_tokens": 10},
        messages=[{"role": "user", "content": "THINK:let me see, and see again\nEMIT:done"}],
    )
    thought, text = answer.content
    assert thought.type == "thinking"
    assert (thought.thinking.strip(), text.type, answer.stop_reason) == ("let me see", "text", "end_turn")
    assert text.type == "text"
    assert text.text == "done"


RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "sun"}]}
USED = {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "get_weather", "input": {"a": 1.0}}]}
SHAPES: list[dict[str, Any]] = [
    {"tools": [WEATHER]},
    {"tools": [WEATHER, TIME], "tool_choice": {"type": "none"}},
    {"tools": [WEATHER], "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
    {"tools": [WEATHER], "messages": [{"role": "user", "content": ONE}, USED, {"role": "user", "content": [RESULT]}]},
    {
        "tools": [WEATHER],
        "messages": [
            {"role": "user", "content": "hi"},
            USED,
            {"role": "user", "content": [RESULT, {"type": "text", "text": "and now?"}]},
        ],
    },
    {"thinking": {"type": "enabled", "budget_tokens": 1024}},
    {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}},
    {
        "messages": [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "x"}]},
            {"role": "user", "content": "more"},
        ]
    },
    {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object", "properties": {}}}}},
    {"system": "be brief", "cache_control": {"type": "ephemeral"}},
]


@pytest.mark.parametrize("extra", SHAPES)
def test_count_tokens_is_what_the_call_uses(http: httpx.Client, extra: dict[str, Any]) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}], **extra}
    counted = http.post("/v1/messages/count_tokens", json=body)
    assert counted.status_code == 200, counted.text
    answer = http.post("/v1/messages", json=body | {"max_tokens": 2048})
    assert answer.status_code == 200, answer.text
    assert counted.json() == {"input_tokens": prompt_tokens(strict.message(answer.json()).usage)}


def test_every_streamed_event_of_a_call_is_strictly_typed_and_ordered(http: httpx.Client) -> None:
    body = {
        "model": MODEL,
        "max_tokens": 900,
        "stream": True,
        "tools": [WEATHER],
        "messages": [{"role": "user", "content": f"THINK:so\n{THREE}"}],
        "thinking": {"type": "enabled", "budget_tokens": 1024},
    }
    with http.stream("POST", "/v1/messages?beta=true", json=body) as response:
        events = strict.sse(response)
    strict.message_stream(events)
    starts = [event["content_block"] for event in events if event["type"] == "content_block_start"]
    assert [start["type"] for start in starts] == ["thinking", "tool_use", "tool_use", "tool_use"]
    assert all(start["input"] == {} for start in starts[1:])
    pieces: dict[int, str] = {}
    for event in events:
        if event["type"] == "content_block_delta" and event["delta"]["type"] == "input_json_delta":
            pieces[event["index"]] = pieces.get(event["index"], "") + event["delta"]["partial_json"]
    assert [json.loads(piece) for piece in pieces.values()] == [{"location": place} for place in PLACES]


def test_what_was_written_to_the_cache_is_read_by_the_next_turn(client: anthropic.Anthropic) -> None:
    system: list[anthropic.types.TextBlockParam] = [
        {"type": "text", "text": "a cached system prompt " * 20, "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    ]
    said: list[MessageParam] = [{"role": "user", "content": "first of two"}]
    first = client.messages.create(model=MODEL, max_tokens=50, system=system, messages=said)
    second = client.messages.create(model=MODEL, max_tokens=50, system=system, messages=said)
    assert (first.usage.cache_creation_input_tokens or 0) > 0
    assert first.usage.cache_creation is not None
    assert first.usage.cache_creation.ephemeral_1h_input_tokens == first.usage.cache_creation_input_tokens
    assert (second.usage.cache_read_input_tokens or 0) > 0
    assert prompt_tokens(first.usage) == prompt_tokens(second.usage)


def test_a_call_cut_short_is_told_as_such(client: anthropic.Anthropic) -> None:
    answer = client.messages.create(
        model=MODEL, max_tokens=40, tools=[WEATHER], messages=[{"role": "user", "content": ONE}]
    )
    strict.message(answer.model_dump(mode="json"))
    assert answer.stop_reason == "max_tokens"
    assert answer.usage.output_tokens == 40
