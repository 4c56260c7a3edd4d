"""The official openai package against a live server: Chat Completions and models."""

from __future__ import annotations

import anthropic
import httpx
import openai
import pytest

from support import strict
from support.server import LiveServer

pytestmark = pytest.mark.live
MODEL = "simulated"


@pytest.fixture
def client(server: LiveServer) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.base_url}/v1", api_key="x", max_retries=0)


def test_create(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "hello"}])
    strict.completion(answer.model_dump(mode="json"))
    assert answer.choices[0].message.content == "echo: hello"
    assert answer.choices[0].finish_reason == "stop"


@pytest.mark.parametrize("usage", [False, True])
def test_every_chunk_is_strictly_typed_and_ordered(http: httpx.Client, usage: bool) -> None:
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "wörld 🌧"}],
        "stream": True,
        "stream_options": {"include_usage": usage},
    }
    with http.stream("POST", "/v1/chat/completions", json=body) as response:
        assert strict.completion_stream(strict.sse(response), usage=usage) == "echo: wörld 🌧"


def test_the_sdks_stream(client: openai.OpenAI) -> None:
    chunks = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "hello"}],
        stream=True,
        stream_options={"include_usage": True},
    )
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "echo: hello"


def test_a_replayed_history_is_warm(client: openai.OpenAI) -> None:
    said: list[openai.types.chat.ChatCompletionMessageParam] = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "hello again"},
    ]
    first = client.chat.completions.create(model=MODEL, messages=said)
    said += [
        {"role": "assistant", "content": first.choices[0].message.content},
        {"role": "user", "content": [{"type": "text", "text": "more"}]},
    ]
    second = client.chat.completions.create(model=MODEL, messages=said)
    assert first.usage is not None
    assert second.usage is not None
    assert second.usage.prompt_tokens_details is not None
    held = first.usage.prompt_tokens + first.usage.completion_tokens - 1
    assert (second.usage.prompt_tokens_details.cached_tokens or 0) >= held


def test_length_and_stop(client: openai.OpenAI) -> None:
    said: list[openai.types.chat.ChatCompletionMessageParam] = [{"role": "user", "content": "one two three"}]
    cut = client.chat.completions.create(model=MODEL, messages=said, max_completion_tokens=4)
    assert cut.choices[0].finish_reason == "length"
    assert cut.choices[0].message.content == "echo"
    stopped = client.chat.completions.create(model=MODEL, messages=said, stop=["three", "two"])
    assert stopped.choices[0].message.content == "echo: one "
    assert stopped.choices[0].finish_reason == "stop"


def test_models_in_both_dialects(server: LiveServer, client: openai.OpenAI) -> None:
    assert [m.id for m in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).id == MODEL
    other = anthropic.Anthropic(base_url=server.base_url, api_key="x", max_retries=0)
    assert [m.id for m in other.models.list()] == [MODEL]
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-9")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/nothing", 404),
        ("GET", "/v1/responses", 405),
        ("PUT", "/v1/chat/completions", 405),
        ("GET", "/v1/messages", 405),
        ("GET", "/health", 200),
        ("GET", "/ready", 200),
        ("GET", "/metrics", 200),
        ("HEAD", "/", 200),
    ],
)
def test_routes(http: httpx.Client, method: str, path: str, status: int) -> None:
    answer = http.request(method, path)
    assert answer.status_code == status
    if status == 405:
        assert "POST" in answer.headers["allow"]
    if status >= 400:
        assert "error" in answer.json()


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages", "/v1/chat/completions"])
def test_bodies_that_cannot_be_read(http: httpx.Client, path: str) -> None:
    json_type = {"content-type": "application/json"}
    for content, headers, statuses in (
        (b"{", json_type, {400}),
        (b'{"model": "\xff"}', json_type, {400}),
        (b"[]", json_type, {400}),
        (b"{}", json_type, {400}),
        (b"{}", {"content-type": "text/plain"}, {400, 415}),
        (b'{"model": "simulated", "x": "' + b"y" * (11 << 20) + b'"}', json_type, {413}),
    ):
        answer = http.post(path, content=content, headers=headers)
        assert answer.status_code in statuses, (content[:30], answer.text[:200])
        assert "error" in answer.json()
