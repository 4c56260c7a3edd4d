"""The client: what it sends, and what it makes of a server that fails."""

from __future__ import annotations

import json

import httpx
import pytest

from support.bench import chat_stream, client_of
from warmlane.bench.burst import request_bytes, status_of
from warmlane.bench.client import BenchClient, RequestRefused, Said, Target
from warmlane.errors import BenchError

ASKED = [Said("user", "hello")]


async def test_a_chat_is_greedy_streamed_and_may_end_by_itself() -> None:
    bodies = []

    def answer(request: httpx.Request) -> httpx.Response:
        bodies.append(json.loads(request.content))
        return chat_stream("a", "b")

    times: list[float] = []
    async with client_of(answer) as client:
        reply = await client.chat(ASKED, max_tokens=7, on_piece=times.append)

    assert bodies[0] == {
        "model": "m",
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": 7,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert (reply.text, reply.cached_tokens, len(times)) == ("ab", 4, 2)
    assert 0 <= reply.ttft_s <= reply.total_s


async def test_a_refusal_keeps_its_status() -> None:
    async with client_of(lambda _: httpx.Response(429, text="the queue\nis full")) as client:
        with pytest.raises(RequestRefused, match="429: the queue is full") as caught:
            await client.chat(ASKED, max_tokens=1)
    assert caught.value.status == 429
    assert caught.value.after_s >= 0


async def test_a_server_that_is_away_is_named() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    async with client_of(answer) as client:
        with pytest.raises(BenchError, match=r"http://bench.test did not answer: refused"):
            await client.chat(ASKED, max_tokens=1)
        with pytest.raises(BenchError, match=r"http://bench.test did not answer"):
            await client.count_tokens({})


async def test_an_answer_of_another_kind_is_told() -> None:
    async with client_of(lambda _: httpx.Response(200, text="<html>")) as client:
        with pytest.raises(BenchError, match="count_tokens answered what was not expected"):
            await client.count_tokens({})


async def test_nobody_there_at_all() -> None:
    with pytest.raises(BenchError, match="did not answer"):
        async with BenchClient.connect(Target("http://127.0.0.1:9")):
            pass


def test_the_key_is_not_shown() -> None:
    assert "hush" not in repr(Target("http://x", "m", "hush"))


def test_the_bytes_of_a_burst() -> None:
    head, body = request_bytes(Target("http://h:1", "m", "k"), "/v1/x", {"a": 1}).split(b"\r\n\r\n")

    assert json.loads(body) == {"a": 1}
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /v1/x HTTP/1.1"
    assert {"host: h:1", "connection: close", "authorization: Bearer k", f"content-length: {len(body)}"} <= set(lines)


@pytest.mark.parametrize(
    ("line", "status"),
    [(b"HTTP/1.1 429 Too Many Requests\r\n", 429), (b"HTTP/1.1 200\r\n", 200), (b"", 0), (b"x y", 0)],
)
def test_a_status_line(line: bytes, status: int) -> None:
    assert status_of(line) == status
