"""Replies that the client began, with the official packages against a live server."""

from __future__ import annotations

import anthropic
import openai
import pytest
from anthropic.types import MessageParam
from openai.types.chat import ChatCompletionMessageParam

from support import strict
from support.server import LiveServer

pytestmark = pytest.mark.live
MODEL = "simulated"
ASKED = 'EMIT:{"a": 1, "b": 2}'


def test_messages(server: LiveServer) -> None:
    client = anthropic.Anthropic(base_url=server.base_url, api_key="x", max_retries=0)
    said: list[MessageParam] = [{"role": "user", "content": ASKED}, {"role": "assistant", "content": '{"a":'}]
    answer = client.messages.create(model=MODEL, max_tokens=100, messages=said)
    strict.message(answer.model_dump(mode="json"))
    with client.messages.stream(model=MODEL, max_tokens=100, messages=said) as stream:
        streamed = stream.get_final_message()
    for reply in (answer, streamed):
        assert reply.content[0].type == "text"
        assert (reply.content[0].text, reply.stop_reason) == (' 1, "b": 2}', "end_turn")
    count = client.messages.count_tokens(model=MODEL, messages=said).input_tokens
    used = answer.usage
    assert count == used.input_tokens + (used.cache_read_input_tokens or 0)
    said[1] = {"role": "assistant", "content": '{"a": 1, "b": 2}'}
    after = client.messages.create(model=MODEL, max_tokens=100, messages=[*said, {"role": "user", "content": "more"}])
    assert (after.usage.cache_read_input_tokens or 0) >= count + used.output_tokens - 1


def test_what_messages_cannot_go_on_from(server: LiveServer) -> None:
    client = anthropic.Anthropic(base_url=server.base_url, api_key="x", max_retries=0)
    for content in ("so ", "<think>hm</think>"):
        with pytest.raises(anthropic.BadRequestError):
            client.messages.create(
                model=MODEL,
                max_tokens=100,
                messages=[{"role": "user", "content": "hi"}, {"role": "assistant", "content": content}],
            )


def test_chat(server: LiveServer) -> None:
    client = openai.OpenAI(base_url=f"{server.base_url}/v1", api_key="x", max_retries=0)
    said: list[ChatCompletionMessageParam] = [
        {"role": "user", "content": ASKED},
        {"role": "assistant", "content": '{"a": '},
    ]
    answer = client.chat.completions.create(
        model=MODEL, messages=said, n=2, extra_body={"continue_final_message": True, "add_generation_prompt": False}
    )
    assert [choice.message.content for choice in answer.choices] == ['1, "b": 2}'] * 2
    new = client.chat.completions.create(model=MODEL, messages=said)
    assert new.choices[0].message.content == '{"a": 1, "b": 2}'
