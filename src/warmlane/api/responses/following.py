"""Telling the events of a background response over one connection, whichever they are and whenever it came."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from warmlane.api import sse
from warmlane.api.body import ClientGone
from warmlane.api.errors import WireError, openai_fault, wire_error
from warmlane.api.headers import Headers
from warmlane.api.responses import event_wire
from warmlane.api.responses.replay import event_type
from warmlane.api.settings import Edge
from warmlane.errors import WarmlaneError
from warmlane.turns.runs import LoggedEvent


class EventsResponse(Response):
    """A stream of logged events, which are those behind number `after`. Its silence is broken by comments: the numbers
    of the events are taken."""

    def __init__(self, edge: Edge, events: AsyncIterator[LoggedEvent], headers: Headers, *, after: int = -1) -> None:
        super().__init__()
        self._edge = edge
        self._events = events
        self._last = after
        self._first_headers = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def leave() -> None:
            if not gone.done():
                gone.set_result(None)

        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            leave()

        settings = self._edge.settings
        writer = sse.EventWriter(
            send,
            clock=self._edge.clock,
            keep_alive_s=settings.keep_alive_s,
            drain_timeout_s=settings.drain_timeout_s,
            on_stall=leave,
        )
        tasks = [asyncio.create_task(work) for work in (watch(), self._tell(writer))]
        try:
            await asyncio.wait((gone, tasks[1]), return_when=asyncio.FIRST_COMPLETED)
            if tasks[1].done():
                await tasks[1]
        except (ClientGone, OSError):
            pass
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _tell(self, writer: sse.EventWriter) -> None:
        await writer.begin(self._first_headers)
        beat = asyncio.create_task(writer.keep_alive(lambda: (sse.COMMENT,)))
        try:
            await self._write_all(writer)
        finally:
            beat.cancel()
            await asyncio.gather(beat, return_exceptions=True)
        await writer.end()

    async def _write_all(self, writer: sse.EventWriter) -> None:
        try:
            async for event in self._events:
                await writer.write((_frame(event.data),))
                self._last = event.sequence
        except WarmlaneError as error:
            await writer.write((_fault(wire_error(error), self._last + 1),))


def _fault(error: WireError, sequence: int) -> bytes:
    """The event that the store could not be read any further. A client that comes again asks for what follows the last
    one of the run, whose next one has the same number."""
    told = event_wire.ErrorEvent(
        sequence_number=sequence,
        code=error.code,
        message=error.message,
        param=error.param,
        error=openai_fault(error),
    )
    return sse.named("error", told)


def _frame(data: bytes) -> bytes:
    return b"event: " + event_type(data).encode() + b"\ndata: " + data + b"\n\n"
