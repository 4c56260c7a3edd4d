"""anthropic-python, of two major versions: streams, tools, thinking, counting and what is called beta."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import pytest
from anthropic import beta_tool
from pydantic import BaseModel

from weather import ANSWER, ASKED, ASKED_OF_ALL, DESCRIPTION, MODEL, PLACE, PLACES, SCHEMA, Weather

TOOL: Any = {"name": "get_weather", "description": DESCRIPTION, "input_schema": SCHEMA}


class Answer(BaseModel):
    why: str
    answer: int


@pytest.fixture
def client(server_url: str) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=server_url, api_key="none", max_retries=0) as client:
        yield client


def prompt_tokens(usage: Any) -> int:
    return usage.input_tokens + (usage.cache_read_input_tokens or 0) + (usage.cache_creation_input_tokens or 0)


def assert_warm(first: Any, second: Any) -> None:
    """All of the first turn but its last token, which was sampled and never prefilled, was reused."""
    held = prompt_tokens(first.usage) + first.usage.output_tokens - 1
    assert held <= (second.usage.cache_read_input_tokens or 0) < prompt_tokens(second.usage)


def results(message: Any, tool: Weather) -> dict[str, Any]:
    """Run every call of a message."""
    calls = [block for block in message.content if block.type == "tool_use"]
    content = [{"type": "tool_result", "tool_use_id": call.id, "content": tool.get(**call.input)} for call in calls]
    return {"role": "user", "content": content}


def test_a_tool_loop_over_the_stream_helper(client: anthropic.Anthropic) -> None:
    tool = Weather()
    said: list[Any] = [{"role": "user", "content": ASKED}]
    with client.messages.stream(model=MODEL, max_tokens=500, tools=[TOOL], messages=said) as stream:
        pieces = [event.partial_json for event in stream if event.type == "input_json"]
        first = stream.get_final_message()
    assert first.stop_reason == "tool_use"
    (call,) = first.content
    assert call.type == "tool_use"
    assert call.input == json.loads("".join(pieces)) == {"location": PLACE}
    said += [{"role": "assistant", "content": first.content}, results(first, tool)]
    with client.messages.stream(model=MODEL, max_tokens=500, tools=[TOOL], messages=said) as stream:
        text = "".join(stream.text_stream)
        second = stream.get_final_message()
    assert tool.asked == [PLACE]
    assert text == ANSWER
    assert second.stop_reason == "end_turn"
    assert second.id != first.id
    assert_warm(first, second)


def test_parallel_calls_in_one_piece(client: anthropic.Anthropic) -> None:
    tool = Weather()
    said: list[Any] = [{"role": "user", "content": ASKED_OF_ALL}]
    first = client.messages.create(
        model=MODEL, max_tokens=900, tools=[TOOL], tool_choice={"type": "any"}, messages=said
    )
    said += [{"role": "assistant", "content": first.content}, results(first, tool)]
    counted = client.messages.count_tokens(model=MODEL, tools=[TOOL], messages=said)
    second = client.messages.create(model=MODEL, max_tokens=900, tools=[TOOL], messages=said)
    assert tool.asked == PLACES
    assert counted.input_tokens == prompt_tokens(second.usage)
    assert_warm(first, second)


def test_thinking_is_signed_and_replayed(client: anthropic.Anthropic) -> None:
    thinking: Any = {"type": "enabled", "budget_tokens": 1024}
    tool = Weather()
    said: list[Any] = [{"role": "user", "content": f"THINK:let me see\n{ASKED}"}]
    with client.messages.stream(model=MODEL, max_tokens=2048, thinking=thinking, tools=[TOOL], messages=said) as stream:
        thought = "".join(event.thinking for event in stream if event.type == "thinking")
        first = stream.get_final_message()
    assert [block.type for block in first.content] == ["thinking", "tool_use"]
    assert thought.strip() == first.content[0].thinking.strip() == "let me see"
    assert first.content[0].signature
    said += [{"role": "assistant", "content": first.content}, results(first, tool)]
    raw = client.messages.with_raw_response.create(
        model=MODEL, max_tokens=2048, thinking=thinking, tools=[TOOL], messages=said
    )
    second = raw.parse()
    assert "signature" not in raw.headers.get("x-warmlane-warnings", "")
    assert [block.text for block in second.content if block.type == "text"] == [ANSWER]
    assert_warm(first, second)


def test_a_message_of_the_beta_namespace_is_the_same(client: anthropic.Anthropic) -> None:
    body: Any = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}], "betas": ["some-beta-2026-01-01"]}
    counted = client.beta.messages.count_tokens(**body)
    made = client.beta.messages.create(max_tokens=100, **body)
    with client.beta.messages.stream(max_tokens=100, **body) as stream:
        streamed = stream.get_final_message()
    for message in (made, streamed):
        assert [block.text for block in message.content if block.type == "text"] == ["echo: hello"]
        assert prompt_tokens(message.usage) == counted.input_tokens


@pytest.mark.parametrize("stream", [False, True])
def test_the_beta_tool_runner(client: anthropic.Anthropic, stream: bool) -> None:
    tool = Weather()

    @beta_tool
    def get_weather(location: str) -> str:
        """The weather somewhere."""
        return tool.get(location)

    runner: Any = client.beta.messages.tool_runner(
        model=MODEL,
        max_tokens=500,
        tools=[get_weather],
        messages=[{"role": "user", "content": ASKED}],
        stream=stream,
    )
    turns = [turn.get_final_message() if stream else turn for turn in runner]
    assert tool.asked == [PLACE]
    assert [turn.stop_reason for turn in turns] == ["tool_use", "end_turn"]
    assert turns[1].content[0].text == ANSWER
    assert_warm(*turns)


def test_structured_output_is_parsed(client: anthropic.Anthropic) -> None:
    parsed = client.messages.parse(
        model=MODEL,
        max_tokens=200,
        messages=[{"role": "user", "content": 'EMIT:{"why": "so", "answer": 42}'}],
        output_format=Answer,
    )
    assert parsed.parsed_output == Answer(why="so", answer=42)


def test_a_dialogue_held_by_the_server_falls_back_to_the_whole_one(client: anthropic.Anthropic) -> None:
    if not hasattr(client.beta.messages, "thread"):
        pytest.skip("this version has no threads")
    thread = client.beta.messages.thread(
        model=MODEL, max_tokens=100, unsupported_request_behavior="continue_unthreaded"
    )
    first = thread.send({"role": "user", "content": "hello there"})
    second = thread.send({"role": "user", "content": "more"})
    assert second.content[0].type == "text"
    assert second.content[0].text == "echo: more"
    assert_warm(first, second)


def test_models_are_listed_in_this_dialect(client: anthropic.Anthropic) -> None:
    (model,) = client.models.list()
    assert (model.id, model.type) == (MODEL, "model")


def test_refusals_are_of_the_sdks_classes(client: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError, match="no-such-model"):
        client.messages.create(model="no-such-model", max_tokens=1, messages=[{"role": "user", "content": "x"}])
    with pytest.raises(anthropic.BadRequestError, match="max_tokens"):
        client.messages.create(model=MODEL, max_tokens=0, messages=[{"role": "user", "content": "x"}])


def test_what_is_not_there_is_not_found(client: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError):
        client.messages.batches.list()
    with pytest.raises(anthropic.NotFoundError):
        client.beta.files.list()


async def test_the_asynchronous_client(server_url: str) -> None:
    said: Any = [{"role": "user", "content": "hello"}]
    async with (
        anthropic.AsyncAnthropic(base_url=server_url, api_key="none", max_retries=0) as client,
        client.messages.stream(model=MODEL, max_tokens=100, messages=said) as stream,
    ):
        assert "".join([text async for text in stream.text_stream]) == "echo: hello"
