"""The embedded model behind the whole server: on each dialect, turn 2 has turn 1's prompt and reply cached."""

from __future__ import annotations

import json
from collections.abc import Iterator

import anthropic
import jsonschema
import openai
import pytest

from support.server import LiveServer, live_server

pytestmark = [pytest.mark.model, pytest.mark.live]
MODEL = "smollm2-135m-instruct"
QUESTION = "Name three rivers of Europe, and say one thing about each of them."
YES_OR_NO = "Is the sky blue? Answer yes or no."
FORECAST = {
    "type": "object",
    "properties": {
        "place": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 20}, "country": {"enum": ["CH", "FR", "IT"]}},
            "required": ["city", "country"],
            "additionalProperties": False,
        },
        "days": {
            "type": "array",
            "items": {"type": "integer", "minimum": 0, "maximum": 9},
            "minItems": 1,
            "maxItems": 3,
        },
        "unit": {"enum": ["c", "f"]},
    },
    "required": ["place", "days"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module", params=["paged", "flat"])
def server(request: pytest.FixtureRequest) -> Iterator[LiveServer]:
    with live_server(*(["--flat"] if request.param == "flat" else [])) as running:
        yield running


@pytest.fixture
def client(server: LiveServer) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.base_url}/v1", api_key="x", max_retries=0)


@pytest.mark.parametrize(("asked", "end"), [(QUESTION, "incomplete"), (YES_OR_NO, "completed")])
def test_responses_by_previous_id(client: openai.OpenAI, asked: str, end: str) -> None:
    one = client.responses.create(model=MODEL, input=asked, max_output_tokens=24, temperature=0)
    assert one.status == end
    two = client.responses.create(model=MODEL, input="Shorter.", previous_response_id=one.id, max_output_tokens=8)
    assert one.usage is not None
    assert two.usage is not None
    held = one.usage.input_tokens + one.usage.output_tokens - 1
    assert held <= two.usage.input_tokens_details.cached_tokens < two.usage.input_tokens


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_messages_by_full_replay(server: LiveServer, temperature: float) -> None:
    """At temperature 1 many replies re-tokenize differently: only replaying the sampled tokens keeps them cached."""
    client = anthropic.Anthropic(base_url=server.base_url, api_key="x", max_retries=0)
    said: list[anthropic.types.MessageParam] = [{"role": "user", "content": QUESTION}]
    one = client.messages.create(model=MODEL, max_tokens=24, messages=said, extra_body={"temperature": temperature})
    said += [{"role": "assistant", "content": one.content}, {"role": "user", "content": "Shorter."}]
    two = client.messages.create(model=MODEL, max_tokens=8, messages=said)
    before = one.usage.input_tokens + (one.usage.cache_read_input_tokens or 0)
    cached = two.usage.cache_read_input_tokens or 0
    assert before + one.usage.output_tokens - 1 <= cached < cached + two.usage.input_tokens


def test_chat_by_full_replay(client: openai.OpenAI) -> None:
    said: list[openai.types.chat.ChatCompletionMessageParam] = [{"role": "user", "content": QUESTION}]
    one = client.chat.completions.create(model=MODEL, max_tokens=24, messages=said)
    said += [
        {"role": "assistant", "content": one.choices[0].message.content},
        {"role": "user", "content": "Shorter."},
    ]
    two = client.chat.completions.create(model=MODEL, max_tokens=8, messages=said)
    assert one.usage is not None
    assert two.usage is not None
    assert two.usage.prompt_tokens_details is not None
    held = one.usage.prompt_tokens + one.usage.completion_tokens - 1
    assert held <= (two.usage.prompt_tokens_details.cached_tokens or 0) < two.usage.prompt_tokens


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_call_that_chat_requires_keeps_to_its_schema(client: openai.OpenAI, stream: bool) -> None:
    tool = {"type": "function", "function": {"name": "forecast", "description": "Weather.", "parameters": FORECAST}}
    asked = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "How will the weather be in Bern in the next days?"}],
        "tools": [tool],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "max_tokens": 600,
        "temperature": 0.3,
        "seed": 1,
    }
    if stream:
        with client.chat.completions.stream(**asked) as events:
            completion = events.get_final_completion()
    else:
        completion = client.chat.completions.create(**asked)
    (choice,) = completion.choices
    assert choice.finish_reason == "tool_calls"
    (call,) = choice.message.tool_calls or ()
    assert call.function.name == "forecast"
    jsonschema.validate(json.loads(call.function.arguments), FORECAST)
