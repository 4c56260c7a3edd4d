"""litellm: its completion over Chat and over Messages, its Responses, and its Messages."""

from __future__ import annotations

import json
from typing import Any

import litellm
import pytest

from weather import ANSWER, ASKED, ASKED_OF_ALL, DESCRIPTION, MODEL, PLACE, PLACES, SCHEMA, Weather

FUNCTION: Any = {
    "type": "function",
    "function": {"name": "get_weather", "description": DESCRIPTION, "parameters": SCHEMA},
}


# It asks for thinking and for schemas only of models it knows the names of.
CLAUDE = "claude-sonnet-4-5"


@pytest.fixture(params=[f"openai/{MODEL}", f"anthropic/{CLAUDE}"])
def route(request: pytest.FixtureRequest, server_url: str) -> dict[str, Any]:
    """The provider litellm translates its completion to, and where that one is."""
    base = f"{server_url}/v1" if request.param.startswith("openai/") else server_url
    return {"model": request.param, "api_base": base, "api_key": "none", "num_retries": 0}


def assert_warm(first: Any, second: Any) -> None:
    """All of the first turn but its last token, which was sampled and never prefilled, was reused."""
    assert second.total_tokens == second.prompt_tokens + second.completion_tokens
    assert first.total_tokens - 1 <= second.prompt_tokens_details.cached_tokens < second.prompt_tokens


def asked(route: dict[str, Any], said: list[Any], *, stream: bool, **more: Any) -> Any:
    if not stream:
        return litellm.completion(messages=said, **route, **more)
    chunks = list(
        litellm.completion(messages=said, stream=True, stream_options={"include_usage": True}, **route, **more)
    )
    assert len(chunks) > 2
    return litellm.stream_chunk_builder(chunks, messages=said)


@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_loop(route: dict[str, Any], stream: bool) -> None:
    weather = Weather()
    said: list[Any] = [{"role": "user", "content": ASKED_OF_ALL}]
    first = asked(route, said, stream=stream, tools=[FUNCTION])
    assert first.choices[0].finish_reason == "tool_calls"
    said.append(first.choices[0].message)
    for call in first.choices[0].message.tool_calls:
        result = weather.get(**json.loads(call.function.arguments))
        said.append({"role": "tool", "tool_call_id": call.id, "content": result})
    assert weather.asked == PLACES
    second = asked(route, said, stream=stream, tools=[FUNCTION])
    assert second.choices[0].finish_reason == "stop"
    assert "sun over 東京" in second.choices[0].message.content
    assert second.id != first.id
    assert_warm(first.usage, second.usage)


@pytest.mark.parametrize("stream", [False, True])
def test_reasoning_is_apart(route: dict[str, Any], stream: bool) -> None:
    said = [{"role": "user", "content": "THINK:let me see\nEMIT:done"}]
    more: dict[str, Any] = {"reasoning_effort": "low"}
    if route["model"].startswith("openai"):
        more["allowed_openai_params"] = ["reasoning_effort"]
    else:
        more = {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 2048}
    message = asked(route, said, stream=stream, **more).choices[0].message
    assert (message.reasoning_content.strip(), message.content.strip()) == ("let me see", "done")


def test_structured_output(route: dict[str, Any]) -> None:
    schema = {
        "type": "object",
        "properties": {"answer": {"type": "integer"}},
        "required": ["answer"],
        "additionalProperties": False,
    }
    kept = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}
    said = [{"role": "user", "content": 'EMIT:{"answer": 42}'}]
    answer = asked(route, said, stream=False, response_format=kept)
    assert json.loads(answer.choices[0].message.content) == {"answer": 42}


@pytest.mark.parametrize("stream", [False, True])
def test_responses(openai_url: str, stream: bool) -> None:
    weather = Weather()
    where: dict[str, Any] = {"model": f"openai/{MODEL}", "api_base": openai_url, "api_key": "none"}
    tools: list[Any] = [{"type": "function", **FUNCTION["function"]}]

    def ask(said: Any, **more: Any) -> Any:
        answer = litellm.responses(input=said, tools=tools, stream=stream, **where, **more)
        return list(answer)[-1].response if stream else answer

    first = ask(ASKED)
    (call,) = first.output
    result = weather.get(**json.loads(call.arguments))
    said = [{"type": "function_call_output", "call_id": call.call_id, "output": result}]
    second = ask(said, previous_response_id=first.id)
    assert weather.asked == [PLACE]
    assert second.output[0].content[0].text == ANSWER
    assert second.status == "completed"
    cached = second.usage.input_tokens_details.cached_tokens
    assert first.usage.total_tokens - 1 <= cached < second.usage.input_tokens


async def test_messages(server_url: str) -> None:
    weather = Weather()
    where: dict[str, Any] = {"model": f"anthropic/{MODEL}", "api_base": server_url, "api_key": "none"}
    tools = [{"name": "get_weather", "description": DESCRIPTION, "input_schema": SCHEMA}]
    said: list[Any] = [{"role": "user", "content": ASKED}]
    first: Any = await litellm.anthropic_messages(messages=said, tools=tools, max_tokens=500, **where)
    assert first["stop_reason"] == "tool_use"
    (call,) = first["content"]
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": weather.get(**call["input"])}
    said += [{"role": "assistant", "content": first["content"]}, {"role": "user", "content": [result]}]
    second: Any = await litellm.anthropic_messages(messages=said, tools=tools, max_tokens=500, **where)
    assert weather.asked == [PLACE]
    assert second["content"][0]["text"] == ANSWER
    held = sum(first["usage"][name] for name in ("input_tokens", "cache_read_input_tokens", "output_tokens")) - 1
    assert second["usage"]["cache_read_input_tokens"] >= held


async def test_messages_in_a_stream(server_url: str) -> None:
    answer: Any = await litellm.anthropic_messages(
        model=f"anthropic/{CLAUDE}",
        api_base=server_url,
        api_key="none",
        max_tokens=100,
        messages=[{"role": "user", "content": "hello"}],
        stream=True,
    )
    lines = b"".join([piece async for piece in answer]).decode().splitlines()
    events = [json.loads(line.removeprefix("data:")) for line in lines if line.startswith("data:")]
    told = "".join(event["delta"]["text"] for event in events if event["type"] == "content_block_delta")
    assert told == "echo: hello"
    assert [event["type"] for event in events].count("message_stop") == 1
