"""Server-sent events, written by us: LF line ends, one write an event, a keep-alive by wall clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from starlette.types import Message, Send

from warmlane.api import jsonio
from warmlane.clock import Clock, sleep_until

HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)
"""The last one asks a reverse proxy not to collect events."""

AsMessage = Callable[[bytes], Message]
"""One frame as the ASGI message that sends it."""

COMMENT = b": keep-alive\n\n"
DONE = b"data: [DONE]\n\n"


def named(event: str, data: object) -> bytes:
    """An event with an `event:` line; `data` is anything msgspec encodes."""
    return b"event: " + event.encode() + b"\ndata: " + jsonio.encode(data) + b"\n\n"


def plain(data: object) -> bytes:
    """An event of `data:` alone."""
    return b"data: " + jsonio.encode(data) + b"\n\n"


def _body(frame: bytes) -> Message:
    return {"type": "http.response.body", "body": frame, "more_body": True}


class EventWriter:
    """Writes events to one connection, each in a write of its own, awaited so that a slow reader is felt.

    Events are rendered under the lock that orders writes: whatever numbers them and whatever sends them agree. A write
    that takes longer than `drain_timeout_s` calls `on_stall`. `begin` and `end` are those of a response over HTTP.
    """

    def __init__(
        self,
        send: Send,
        *,
        clock: Clock,
        keep_alive_s: float,
        drain_timeout_s: float,
        on_stall: Callable[[], None],
        as_message: AsMessage = _body,
    ) -> None:
        self._send = send
        self._clock = clock
        self._keep_alive_s = keep_alive_s
        self._drain_timeout_s = drain_timeout_s
        self._on_stall = on_stall
        self._as_message = as_message
        self._lock = asyncio.Lock()
        self._last_write_s = clock.now()
        self._closed = False

    async def begin(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        await self._put({"type": "http.response.start", "status": 200, "headers": [*HEADERS, *headers]})

    async def write(self, frames: Iterable[bytes]) -> None:
        """Write the frames in order; nothing else comes between them."""
        async with self._lock:
            await self._write(frames)

    async def end(self) -> None:
        """End the response. Nothing is written after it."""
        async with self._lock:
            self._closed = True
            await self._put({"type": "http.response.body", "body": b""})

    async def keep_alive(self, frames: Callable[[], Iterable[bytes]]) -> None:
        """Write `frames()` whenever nothing else was written for `keep_alive_s`; runs until cancelled or ended."""
        while not self._closed:
            await sleep_until(self._clock, self._last_write_s + self._keep_alive_s)
            async with self._lock:
                if not self._closed and self._clock.now() >= self._last_write_s + self._keep_alive_s:
                    await self._write(frames())

    async def _write(self, frames: Iterable[bytes]) -> None:
        for frame in frames:
            await self._put(self._as_message(frame))

    async def _put(self, message: Message) -> None:
        stall = self._clock.call_at(self._clock.now() + self._drain_timeout_s, self._on_stall)
        try:
            await self._send(message)
        finally:
            stall.cancel()
        self._last_write_s = self._clock.now()
