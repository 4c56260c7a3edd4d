"""Several choices, asked for with the official openai package."""

from __future__ import annotations

from collections import defaultdict

import httpx
import openai
import pytest

from support import strict
from support.server import LiveServer

pytestmark = pytest.mark.live
MODEL = "simulated"
SAID: list[openai.types.chat.ChatCompletionMessageParam] = [{"role": "user", "content": "hello"}]


@pytest.fixture
def client(server: LiveServer) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.base_url}/v1", api_key="x", max_retries=0)


def test_choices_of_an_answer(client: openai.OpenAI) -> None:
    one = client.chat.completions.create(model=MODEL, messages=SAID)
    answer = client.chat.completions.create(model=MODEL, messages=SAID, n=5, seed=3, logprobs=True)
    strict.completion(answer.model_dump(mode="json"))
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3, 4]
    for choice in answer.choices:
        assert choice.message.content == "echo: hello"
        assert choice.finish_reason == "stop"
        assert choice.logprobs is not None
        assert "".join(token.token for token in choice.logprobs.content or ()) == "echo: hello"
    assert one.usage is not None
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == one.usage.prompt_tokens
    assert answer.usage.completion_tokens == 5 * one.usage.completion_tokens


def test_choices_of_a_stream(client: openai.OpenAI) -> None:
    told: dict[int, str] = defaultdict(str)
    ends: dict[int, str] = {}
    usage = None
    for chunk in client.chat.completions.create(
        model=MODEL, messages=SAID, n=4, stream=True, stream_options={"include_usage": True}
    ):
        strict.ChatCompletionChunk.model_validate(chunk.model_dump(mode="json"))
        usage = chunk.usage or usage
        for choice in chunk.choices:
            assert choice.index not in ends
            told[choice.index] += choice.delta.content or ""
            if choice.finish_reason is not None:
                ends[choice.index] = choice.finish_reason
    assert told == dict.fromkeys(range(4), "echo: hello")
    assert ends == dict.fromkeys(range(4), "stop")
    assert usage is not None


def test_the_sdks_stream_helper(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(model=MODEL, messages=SAID, n=3) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    assert [choice.message.content for choice in final.choices] == ["echo: hello"] * 3


def test_each_choice_is_warm_when_it_is_sent_back(client: openai.OpenAI, server: LiveServer) -> None:
    answer = client.chat.completions.create(model=MODEL, messages=SAID, n=2)
    said: list[openai.types.chat.ChatCompletionMessageParam] = [
        *SAID,
        {"role": "assistant", "content": answer.choices[0].message.content},
        {"role": "user", "content": "more"},
    ]
    after = client.chat.completions.create(model=MODEL, messages=said)
    assert answer.usage is not None
    assert after.usage is not None
    assert after.usage.prompt_tokens_details is not None
    held = answer.usage.prompt_tokens + answer.usage.completion_tokens // 2 - 1
    assert (after.usage.prompt_tokens_details.cached_tokens or 0) >= held


def test_too_many(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model=MODEL, messages=SAID, n=17)
    assert refused.value.param == "n"


def test_a_client_that_leaves_frees_the_seat(http: httpx.Client) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "SLOW:30 " + "x" * 400}], "n": 6, "stream": True}
    with http.stream("POST", "/v1/chat/completions", json=body) as response:
        next(response.iter_lines())
    after = http.post("/v1/chat/completions", json={"model": MODEL, "messages": [{"role": "user", "content": "hi"}]})
    assert after.json()["choices"][0]["message"]["content"] == "echo: hi"
