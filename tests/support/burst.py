"""Many requests at one instant, over raw connections: a client library would spread them out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer with a length. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Arrival:
    """One connection and the request it carries. `answer` waits for the status and, if the answer has a length, for
    all of it; a streamed one is left unread."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> None:
        self._reader = reader
        self._writer = writer
        self._request = request

    def send(self) -> None:
        self._writer.write(self._request)

    async def answer(self) -> Answer:
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        pairs = (line.split(":", 1) for line in head[1:] if line)
        headers = {name.strip().lower(): value.strip() for name, value in pairs}
        length = headers.get("content-length")
        body = b"" if length is None else await self._reader.readexactly(int(length))
        return Answer(int(head[0].split()[1]), headers, body)

    def leave(self) -> None:
        """Go away without a word."""
        self._writer.close()


async def connect(base_url: str, path: str, body: Mapping[str, object]) -> Arrival:
    """A connection that is open, with its request not yet sent."""
    host = urlsplit(base_url)
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: {host.netloc}\r\nContent-Type: application/json\r\n"
    reader, writer = await asyncio.open_connection(host.hostname, host.port)
    return Arrival(reader, writer, f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)


@asynccontextmanager
async def burst(
    base_url: str, path: str, body: Mapping[str, object], *, n: int
) -> AsyncIterator[dict[asyncio.Task[Answer], Arrival]]:
    """`n` connections opened first and written to in one go; each answer is a task. All are left at the end."""
    arrivals = await asyncio.gather(*(connect(base_url, path, body) for _ in range(n)))
    for arrival in arrivals:
        arrival.send()
    answers = {asyncio.create_task(arrival.answer()): arrival for arrival in arrivals}
    try:
        yield answers
    finally:
        for answer in answers:
            answer.cancel()
        await asyncio.gather(*answers, return_exceptions=True)
        for arrival in arrivals:
            arrival.leave()
