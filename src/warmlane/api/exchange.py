"""One turn over one HTTP connection, the same for every dialect.

    body read whole → JSON → model → permit (one synchronous stretch) → the rest validated → turn started →
    its events written, or its answer → accepted → closed

The connection never owns the turn: when the client goes away the stream is closed, and the turn decides what that
means.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from starlette.types import Message, Receive, Scope, Send

from warmlane.api import sse
from warmlane.api.body import ClientGone, read_request
from warmlane.api.errors import WireError, is_bug, wire_error
from warmlane.api.guard import Caller, caller_of, log_unexpected
from warmlane.api.headers import Headers, answer_headers, canonical_headers, warning_headers
from warmlane.api.jsonio import JsonObject
from warmlane.api.settings import Edge
from warmlane.conversation.events import Failed, Finished, Loading, TurnEvent, Validated
from warmlane.conversation.turn import Outcome, TurnRequest
from warmlane.turns.stream import TurnStream


class StreamRenderer(Protocol):
    """Renders the events of one turn as the frames of one dialect's stream. Stateful; used by one stream."""

    def opening(self) -> Iterable[bytes]:
        """What is said once the request is known to be sound."""
        ...

    def event(self, event: TurnEvent) -> Iterable[bytes]:
        """What a `Started`, a delta or the `Finished` becomes; and a `Validated` that came after the opening, whose
        warnings no header can tell any more."""
        ...

    def keep_alive(self) -> Iterable[bytes]: ...

    def failure(self, error: WireError) -> Iterable[bytes]:
        """The dialect's error form, ending the stream."""
        ...

    def tells_in_stream(self, error: Exception) -> bool:
        """Whether this error, met before the stream began, is told in a stream rather than by a status."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedTurn:
    """A validated request with the means to answer it. `stream` is None for an answer in one piece; a turn that is not
    `kept` leaves no warm session. `warnings` name what has no effect, `canonicalized` what was respelled."""

    request: TurnRequest
    answer: Callable[[Outcome], bytes]
    stream: StreamRenderer | None
    warnings: tuple[str, ...] = ()
    canonicalized: tuple[str, ...] = ()
    kept: bool = True

    def headers(self, warnings: tuple[str, ...] = ()) -> Headers:
        """What is told in front of the answer. `warnings` are the turn's own."""
        return [*warning_headers((*self.warnings, *warnings)), *canonical_headers(self.canonicalized)]


Prepare = Callable[[JsonObject, Caller], PreparedTurn]

Complete = Callable[[JsonObject, Caller], Awaitable[tuple[JsonObject, tuple[str, ...]]]]
"""Makes of a body one that stands on its own; the strings are warnings."""


class TurnEndpoint:
    """The ASGI app of a route that runs a turn. `prepare` raises `InvalidRequest`. `complete` may wait, for the store
    say: the permit is taken before it."""

    def __init__(self, edge: Edge, prepare: Prepare, *, complete: Complete | None = None) -> None:
        self._edge = edge
        self._prepare = prepare
        self._complete = complete

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        model, body = await read_request(self._edge, scope, receive)
        await self.answer(model, body, scope, receive, send)

    async def answer(self, model: str, body: JsonObject, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request whose body was read by now."""
        caller = caller_of(scope)
        permit = self._edge.turns.reserve(model, caller.tenant)
        try:
            warnings: tuple[str, ...] = ()
            if self._complete is not None:
                body, warnings = await self._complete(body, caller)
            prepared = self._prepare(body, caller)
            prepared = replace(prepared, warnings=(*prepared.warnings, *warnings))
            stream = self._edge.turns.start(prepared.request, permit)
        except BaseException:
            permit.release()
            raise
        await _Exchange(self._edge, prepared, stream, receive, send).run()


class _Exchange:
    """A started turn and the connection it answers on."""

    def __init__(self, edge: Edge, prepared: PreparedTurn, stream: TurnStream, receive: Receive, send: Send) -> None:
        self._edge = edge
        self._prepared = prepared
        self._stream = stream
        self._receive = receive
        self._raw_send = send
        self._gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._accepted = False

    async def run(self) -> None:
        """Answer, and close the stream whatever happens. Raises the turn's error if no byte of an answer was sent."""
        watcher = asyncio.create_task(self._watch())
        work = asyncio.create_task(self._deliver())
        try:
            await asyncio.wait((self._gone, work), return_when=asyncio.FIRST_COMPLETED)
            if work.done() or self._accepted:
                await work
        except ClientGone:
            pass
        finally:
            self._stream.close()
            for task in (watcher, work):
                task.cancel()
            await asyncio.gather(watcher, work, return_exceptions=True)

    async def _send(self, message: Message) -> None:
        try:
            await self._raw_send(message)
        except OSError:
            self._leave()
            raise ClientGone from None

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._leave()

    def _leave(self) -> None:
        if not self._gone.done():
            self._gone.set_result(None)

    async def _deliver(self) -> None:
        renderer = self._prepared.stream
        if renderer is None:
            await self._deliver_whole()
            return
        first = await anext(self._stream)
        if isinstance(first, Failed) and not renderer.tells_in_stream(first.error):
            raise first.error
        settings = self._edge.settings
        writer = sse.EventWriter(
            self._send,
            clock=self._edge.clock,
            keep_alive_s=settings.keep_alive_s,
            drain_timeout_s=settings.drain_timeout_s,
            on_stall=self._leave,
        )
        await writer.begin(self._prepared.headers(first.warnings if isinstance(first, Validated) else ()))
        await writer.write(renderer.opening())
        beat = asyncio.create_task(writer.keep_alive(renderer.keep_alive))
        try:
            await self._deliver_events(writer, renderer, first)
        finally:
            beat.cancel()
            await asyncio.gather(beat, return_exceptions=True)

    async def _deliver_events(self, writer: sse.EventWriter, renderer: StreamRenderer, first: TurnEvent) -> None:
        event = first
        while True:
            match event:
                case Failed():
                    await writer.write(renderer.failure(self._wire_error(event)))
                    await self._accept()
                case Finished():
                    await writer.write(renderer.event(event))
                    await self._accept()
                case Loading():
                    pass
                case Validated() if event is first:
                    pass
                case _:
                    await writer.write(renderer.event(event))
            if isinstance(event, Finished | Failed):
                break
            event = await anext(self._stream)
        await writer.end()

    async def _deliver_whole(self) -> None:
        warnings: tuple[str, ...] = ()
        async for event in self._stream:
            match event:
                case Failed():
                    raise event.error
                case Validated():
                    warnings = event.warnings
                case Finished():
                    await self._answer(event.outcome, warnings)

    async def _answer(self, outcome: Outcome, warnings: tuple[str, ...]) -> None:
        body = self._prepared.answer(outcome)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            *answer_headers(outcome),
            *self._prepared.headers(warnings),
        ]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        await self._send({"type": "http.response.body", "body": body, "more_body": True})
        await self._accept()
        await self._send({"type": "http.response.body", "body": b""})

    async def _accept(self) -> None:
        """The last bytes were written: tell the turn, unless a close was reported by now.

        The yield lets the watcher see a close that the server has already noticed; it comes before the response is
        ended, as an ended response looks like a close.
        """
        await asyncio.sleep(0)
        if self._gone.done():
            return
        self._accepted = True
        if self._prepared.kept:
            self._stream.accept()

    def _wire_error(self, failed: Failed) -> WireError:
        if is_bug(failed.error):
            log_unexpected(failed.error, self._prepared.request.request_id)
        return replace(wire_error(failed.error), spent=failed.usage)
