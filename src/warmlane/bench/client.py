"""One server under measurement, asked as any client would ask it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TypeVar

import httpx
import msgspec

from warmlane.bench.replies import ChatTranscript, MessagesTranscript, Reply, SseData, Transcript
from warmlane.errors import BenchError

Answer = TypeVar("Answer")

CHAT_PATH = "/v1/chat/completions"

TIMEOUT_S = 600.0
"""Between two reads. Long: a server that queues what it cannot run yet is not to be cut off."""


@dataclass(frozen=True, slots=True)
class Said:
    """One message of a dialogue of plain text."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Target:
    """Where a server is, the model to ask for, and the API key, if it wants one."""

    base_url: str
    model: str = ""
    key: str | None = field(default=None, repr=False)


def chat_body(model: str, messages: Sequence[Said], *, max_tokens: int) -> dict[str, object]:
    """A greedy, streamed request on Chat Completions that tells its usage."""
    return {
        "model": model,
        "messages": [{"role": m.role, "content": m.content} for m in messages],
        "max_tokens": max_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


class RequestRefused(BenchError):
    """A status other than 200, `after_s` seconds after the request was sent."""

    def __init__(self, status: int, text: str, after_s: float) -> None:
        super().__init__(f"The server answered {status}: {' '.join(text.split())[:300]}")
        self.status = status
        self.after_s = after_s


class _Models(msgspec.Struct, frozen=True):
    class Entry(msgspec.Struct, frozen=True):
        id: str

    data: tuple[Entry, ...] = ()


class _Count(msgspec.Struct, frozen=True):
    input_tokens: int


class BenchClient:
    """Asks one server. A connection a request: some servers drop idle ones after seconds, and a client that picks one
    up in that moment loses its request. Greedy throughout, and a reply may end by itself.

    Make it with `connect`. Every method raises `BenchError` for a server that is away, refuses or breaks off.
    """

    def __init__(
        self, http: httpx.AsyncClient, target: Target, *, now: Callable[[], float] = time.perf_counter
    ) -> None:
        self._http = http
        self._now = now
        self.target = target

    @classmethod
    @asynccontextmanager
    async def connect(cls, target: Target) -> AsyncIterator[BenchClient]:
        """A client of the target; without a model's name there, of the first one the server lists."""
        headers = {"connection": "close"}
        if target.key is not None:
            headers["authorization"] = f"Bearer {target.key}"
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        async with httpx.AsyncClient(
            base_url=target.base_url.rstrip("/").removesuffix("/v1"), headers=headers, limits=limits, timeout=TIMEOUT_S
        ) as http:
            if not target.model:
                target = replace(target, model=await _first_model(http, target.base_url))
            yield cls(http, target)

    async def chat(
        self, messages: Sequence[Said], *, max_tokens: int, on_piece: Callable[[float], None] | None = None
    ) -> Reply:
        """Ask on Chat Completions; `on_piece` gets the clock's time as each piece comes."""
        body = chat_body(self.target.model, messages, max_tokens=max_tokens)
        return await self._stream(CHAT_PATH, body, ChatTranscript(), on_piece)

    async def messages(self, body: Mapping[str, object]) -> Reply:
        """Ask on Anthropic Messages; `body` has all but the model, and what makes the answer a greedy stream."""
        whole = {"model": self.target.model, "temperature": 0, "stream": True, **body}
        return await self._stream("/v1/messages", whole, MessagesTranscript(), None)

    async def count_tokens(self, body: Mapping[str, object]) -> int:
        """The prompt tokens of a Messages request."""
        whole = {"model": self.target.model, **body}
        return (await self.post("/v1/messages/count_tokens", whole, _Count)).input_tokens

    async def post(self, path: str, body: Mapping[str, object], answer: type[Answer]) -> Answer:
        """POST for JSON of the given type."""
        sent = self._now()
        try:
            response = await self._http.post(path, json=body)
        except httpx.HTTPError as error:
            raise _away(self.target.base_url, error) from None
        if response.status_code != 200:
            raise RequestRefused(response.status_code, response.text, self._now() - sent)
        return _parse(response.content, answer, path)

    async def _stream(
        self, path: str, body: Mapping[str, object], transcript: Transcript, on_piece: Callable[[float], None] | None
    ) -> Reply:
        sse = SseData()
        # The clock starts before the connection is made, and so counts the server's accepting it.
        sent = self._now()
        try:
            async with self._http.stream("POST", path, json=body) as response:
                if response.status_code != 200:
                    text = (await response.aread()).decode(errors="replace")
                    raise RequestRefused(response.status_code, text, self._now() - sent)
                async for line in response.aiter_lines():
                    data = sse.feed(line)
                    if data is None:
                        continue
                    at = self._now()
                    if transcript.add(data, at - sent) and on_piece is not None:
                        on_piece(at)
        except httpx.HTTPError as error:
            raise _away(self.target.base_url, error) from None
        return transcript.reply(self._now() - sent)


async def _first_model(http: httpx.AsyncClient, base_url: str) -> str:
    try:
        response = await http.get("/v1/models")
    except httpx.HTTPError as error:
        raise _away(base_url, error) from None
    if response.status_code != 200:
        raise BenchError(f"{base_url} does not list its models (status {response.status_code}); give their name.")
    listed = _parse(response.content, _Models, "/v1/models").data
    if not listed:
        raise BenchError(f"{base_url} serves no model.")
    return listed[0].id


def _away(base_url: str, error: httpx.HTTPError) -> BenchError:
    return BenchError(f"{base_url} did not answer: {error or type(error).__name__}.")


def _parse(content: bytes, answer: type[Answer], path: str) -> Answer:
    try:
        return msgspec.json.decode(content, type=answer)
    except msgspec.MsgspecError as error:
        raise BenchError(f"{path} answered what was not expected of it: {error}.") from None
