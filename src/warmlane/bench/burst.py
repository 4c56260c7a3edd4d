"""Requests that reach a server in the same moment, with as little of the client's own work in their times as can be.

A full HTTP client spends milliseconds of CPU on each request, which 200 at once would wait for. So connections are made
first, the bytes of all requests are ready, and of the answers only the status line is read.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from urllib.parse import urlsplit

from warmlane.bench.client import TIMEOUT_S, Target
from warmlane.errors import BenchError


@dataclass(frozen=True, slots=True)
class Answer:
    """The status, and seconds from sending the request to it and to the end of the answer. Status 0: the server closed
    or broke the connection without one."""

    status: int
    head_s: float
    total_s: float


@dataclass(frozen=True, slots=True)
class _Line:
    """A connection that has not been used yet."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def ask(self, request: bytes) -> Answer:
        sent = time.perf_counter()
        head_s, status = 0.0, 0
        try:
            self.writer.write(request)
            async with asyncio.timeout(TIMEOUT_S):
                status = status_of(await self.reader.readline())
                head_s = time.perf_counter() - sent
                while await self.reader.read(1 << 16):
                    pass
        except (OSError, TimeoutError):
            status = 0
        return Answer(status, head_s, time.perf_counter() - sent)


async def burst(target: Target, path: str, bodies: Sequence[Mapping[str, object]]) -> list[Answer]:
    """POST all bodies at once, a connection each; the answers in order. Raises `BenchError` if one cannot connect."""
    async with AsyncExitStack() as opened:
        lines = [await _connect(target, opened) for _ in bodies]
        requests = [request_bytes(target, path, body) for body in bodies]
        return await asyncio.gather(*(line.ask(request) for line, request in zip(lines, requests, strict=True)))


def request_bytes(target: Target, path: str, body: Mapping[str, object]) -> bytes:
    """An HTTP/1.1 request whose connection ends with its answer."""
    content = json.dumps(body).encode()
    key = "" if target.key is None else f"authorization: Bearer {target.key}\r\n"
    head = (
        f"POST {path} HTTP/1.1\r\nhost: {urlsplit(target.base_url).netloc}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(content)}\r\nconnection: close\r\n{key}\r\n"
    )
    return head.encode() + content


def status_of(line: bytes) -> int:
    """The code of a status line; 0 if it is none."""
    words = line.split()
    return int(words[1]) if len(words) > 1 and words[0].startswith(b"HTTP/") and words[1].isdigit() else 0


async def _connect(target: Target, opened: AsyncExitStack) -> _Line:
    url = urlsplit(target.base_url)
    secure = url.scheme == "https"
    port = url.port or (443 if secure else 80)
    try:
        reader, writer = await asyncio.open_connection(url.hostname, port, ssl=secure)
    except OSError as error:
        raise BenchError(f"{target.base_url} did not answer: {error.strerror}.") from None
    opened.callback(writer.close)
    return _Line(reader, writer)
