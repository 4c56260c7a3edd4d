"""GET /v1/responses as a WebSocket: `response.create` messages, each answered with the events of a stream.

One turn at a time; further messages wait. A turn takes the same path, permit and session as over HTTP. The connection
is closed with 1001 when the server shuts down.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, replace

import msgspec
from msgspec import structs
from starlette.types import Message, Receive, Scope, Send

from warmlane.api import jsonio, sse
from warmlane.api.body import ClientGone, served
from warmlane.api.errors import HttpRefusal, is_bug, wire_error
from warmlane.api.exchange import PreparedTurn
from warmlane.api.guard import Caller, caller_of, log_unexpected
from warmlane.api.jsonio import JsonObject
from warmlane.api.responses.completion import Completion, may_cut
from warmlane.api.responses.continuation import Owners, Unstored
from warmlane.api.responses.event_wire import Created
from warmlane.api.responses.events import ResponsesStream
from warmlane.api.responses.request import as_items
from warmlane.api.responses.turns import Preparer
from warmlane.api.settings import Edge
from warmlane.conversation.events import Failed, Finished, Loading, TurnEvent, Validated
from warmlane.conversation.turn import TurnRequest
from warmlane.errors import InvalidRequest, Overloaded, PreviousResponseNotFound
from warmlane.turns.service import TurnPermit
from warmlane.turns.stream import TurnStream

MAX_PENDING = 16
"""Messages that may wait while a turn runs; one more, and the connection is closed. Together they may be as large as
a body; one alone is refused for its size when its turn comes."""

GOING_AWAY = 1001
TOO_MUCH = 1008
_HTTP_FIELDS = ("type", "stream", "stream_options", "background", "generate")


class SocketFault(msgspec.Struct, frozen=True, kw_only=True):
    type: str
    code: str | None
    message: str
    param: str | None
    headers: dict[str, str] | None = None


class SocketError(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="error"):
    """What a turn that never began is told by, with the status it would have had over HTTP."""

    status: int
    error: SocketFault


@dataclass(slots=True)
class _Frames:
    """Writes events as JSON. `warnings` go into the first, as there are no headers."""

    warnings: tuple[str, ...] = ()

    def __call__(self, _: str, event: msgspec.Struct) -> bytes:
        if self.warnings and isinstance(event, Created):
            event = structs.replace(event, warnings=self.warnings)
        return jsonio.encode(event)


class ResponsesSocket:
    """The ASGI app of the route."""

    def __init__(self, edge: Edge, preparer: Preparer) -> None:
        self._edge = edge
        self._preparer = preparer
        self._owners = Owners()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        unstored = Unstored(self._owners, max_bytes=self._edge.settings.max_body_bytes)
        connection = _Connection(self._edge, self._preparer, unstored, scope, send)
        await connection.run(receive)


class _Connection:
    """One client. `inbox` holds what it has sent and nobody has read, `named` is the response the turn continues."""

    def __init__(
        self,
        edge: Edge,
        preparer: Preparer,
        unstored: Unstored,
        scope: Scope,
        send: Send,
    ) -> None:
        self._edge = edge
        self._preparer = preparer
        self._complete = Completion(edge, preparer, cuts=may_cut, count=self._count_tokens)
        self._unstored = unstored
        self._scope = scope
        self._raw_send = send
        self._inbox: deque[bytes] = deque()
        self._changed = asyncio.Event()
        self._gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._closing: int | None = None
        self._stream: TurnStream | None = None
        self._named: object = None
        self._writer = sse.EventWriter(
            self._send,
            clock=edge.clock,
            keep_alive_s=edge.settings.keep_alive_s,
            drain_timeout_s=edge.settings.drain_timeout_s,
            on_stall=self._leave,
            as_message=_text_message,
        )

    async def run(self, receive: Receive) -> None:
        if (await receive())["type"] != "websocket.connect":
            return
        request_id = caller_of(self._scope).request_id.encode()
        await self._send({"type": "websocket.accept", "headers": [(b"x-request-id", request_id)]})
        forget = self._edge.host.on_drain(lambda: self._close(GOING_AWAY))
        reader = asyncio.create_task(self._read(receive))
        try:
            while (message := await self._next()) is not None:
                await self._turn(message)
            if not self._gone.done():
                await self._send({"type": "websocket.close", "code": self._closing or GOING_AWAY})
        except ClientGone:
            pass
        finally:
            forget()
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)

    async def _read(self, receive: Receive) -> None:
        flooded = False
        while (message := await receive())["type"] == "websocket.receive":
            if flooded:
                continue
            text = message.get("text")
            self._inbox.append(message.get("bytes") or b"" if text is None else text.encode("utf-8", "replace"))
            self._changed.set()
            if self._is_flooded():
                flooded = True
                self._inbox.clear()
                self._close(TOO_MUCH)
        self._leave()

    def _is_flooded(self) -> bool:
        waiting = sum(map(len, self._inbox))
        too_large = len(self._inbox) > 1 and waiting > self._edge.settings.max_body_bytes
        return too_large or len(self._inbox) > MAX_PENDING

    async def _next(self) -> bytes | None:
        """The next message; None once the client has gone, or the connection is to be closed."""
        while not (self._gone.done() or self._closing or self._inbox):
            self._changed.clear()
            await self._changed.wait()
        return None if self._gone.done() or self._closing else self._inbox.popleft()

    async def _turn(self, message: bytes) -> None:
        """Answer one message; leave it when the client goes."""
        work = asyncio.create_task(self._answer(message))
        try:
            await asyncio.wait((self._gone, work), return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                await work
        finally:
            self._end_stream()
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)

    async def _answer(self, message: bytes) -> None:
        request_id = f"req_{self._edge.new_token()}"
        self._named = None
        try:
            caller = Caller(request_id, self._edge.settings.keys.identify(self._scope["headers"]))
            body = self._decoded(message)
            self._named = body.get("previous_response_id")
            await self._create(body, caller)
        except ClientGone:
            raise
        except Exception as error:
            if is_bug(error):
                log_unexpected(error, request_id)
            self._failed(error)
            await self._writer.write([jsonio.encode(_socket_error(error))])

    def _decoded(self, message: bytes) -> JsonObject:
        limit = self._edge.settings.max_body_bytes
        if len(message) > limit:
            raise HttpRefusal(413, f"The message is over the limit of {limit} bytes.", code="request_too_large")
        body = jsonio.decode_object(message)
        if body.get("type") != "response.create":
            raise InvalidRequest("'type': must be response.create; nothing else is understood here.", param="type")
        if body.get("stream_id") is not None:
            raise InvalidRequest("'stream_id': one connection runs one response at a time.", param="stream_id")
        if body.get("background"):
            raise InvalidRequest("'background': is not for WebSockets.", param="background")
        return body

    async def _create(self, sent: JsonObject, caller: Caller) -> None:
        """Raises what keeps the turn from beginning."""
        self._unstored.check(self._named)
        body = {name: value for name, value in sent.items() if name not in _HTTP_FIELDS}
        body = self._unstored.completed({**body, "stream": True}, _items(sent))
        frames = _Frames()
        model, body = served(self._edge, body)
        permit = self._edge.turns.reserve(model, caller.tenant)
        try:
            body, warnings = await self._complete(body, caller)
            generates = _generates(sent)
            if not generates:
                warnings = (*warnings, *(["store"] if body.get("store") is True else []))
                body = {**body, "store": False}
            prepared = self._preparer.prepare(body, caller, frame=frames, may_be_empty=not generates)
            frames.warnings = (*prepared.warnings, *warnings, *prepared.canonicalized)
            if not generates:
                permit.release()
                await self._prepare_only(prepared, body)
                return
            first = await self._start(prepared.request, permit)
        except BaseException:
            permit.release()
            raise
        first = await self._recovered(prepared.request, first)
        if isinstance(first, Validated):
            frames.warnings = (*frames.warnings, *first.warnings)
        await self._play(prepared, first)

    async def _prepare_only(self, prepared: PreparedTurn, body: JsonObject) -> None:
        """A response without a reply, to be continued: what it was given goes in front of what comes next."""
        self._unstored.prepared(prepared.request.response_id, _items(body), body.get("previous_response_id"))
        renderer = _renderer(prepared)
        await self._writer.write(renderer.opening())
        await self._writer.write(renderer.nothing())

    async def _start(self, request: TurnRequest, permit: TurnPermit) -> TurnEvent:
        """The first event of the turn."""
        self._stream = self._edge.turns.start(request, permit)
        return await anext(self._stream)

    async def _count_tokens(self, request: TurnRequest) -> int:
        """As `TurnService.count_tokens`, also where the turn can only start from the messages kept here."""
        try:
            return await self._edge.turns.count_tokens(request)
        except PreviousResponseNotFound:
            cold = self._unstored.cold(request)
            if cold is None:
                raise
            return await self._edge.turns.count_tokens(cold)

    async def _recovered(self, request: TurnRequest, first: TurnEvent) -> TurnEvent:
        """Start again from the messages kept here, where the session of an unstored response is not warm any more."""
        lost = isinstance(first, Failed) and isinstance(first.error, PreviousResponseNotFound)
        cold = self._unstored.cold(request) if lost else None
        if cold is None:
            return first
        self._end_stream()
        permit = self._edge.turns.reserve(request.model, request.tenant)
        try:
            return await self._start(cold, permit)
        except BaseException:
            permit.release()
            raise

    async def _play(self, prepared: PreparedTurn, first: TurnEvent) -> None:
        renderer = _renderer(prepared)
        if isinstance(first, Failed) and not renderer.tells_in_stream(first.error):
            raise first.error
        await self._writer.write(renderer.opening())
        beat = asyncio.create_task(self._writer.keep_alive(renderer.keep_alive))
        try:
            await self._play_events(prepared, renderer, first)
        finally:
            beat.cancel()
            await asyncio.gather(beat, return_exceptions=True)

    async def _play_events(self, prepared: PreparedTurn, renderer: ResponsesStream, first: TurnEvent) -> None:
        stream, request, event = self._stream, prepared.request, first
        assert stream is not None
        while True:
            if isinstance(event, Failed):
                if is_bug(event.error):
                    log_unexpected(event.error, request.request_id)
                self._failed(event.error)
                await self._writer.write(renderer.failure(replace(wire_error(event.error), spent=event.usage)))
            elif isinstance(event, Finished):
                if prepared.kept:
                    self._unstored.finished(request, event.outcome)
                await self._writer.write(renderer.event(event))
            elif not (isinstance(event, Loading) or (isinstance(event, Validated) and event is first)):
                await self._writer.write(renderer.event(event))
            if isinstance(event, Failed | Finished):
                break
            event = await anext(stream)
        await asyncio.sleep(0)  # a close that the server has noticed by now is heard first
        if prepared.kept and not self._gone.done():
            stream.accept()

    def _failed(self, error: Exception) -> None:
        """A turn failed: what it named can not be named again, unless it may simply be tried again."""
        if not isinstance(error, Overloaded):
            self._unstored.failed(self._named)

    def _end_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    async def _send(self, message: Message) -> None:
        try:
            await self._raw_send(message)
        except OSError:
            self._leave()
            raise ClientGone from None

    def _leave(self) -> None:
        if not self._gone.done():
            self._gone.set_result(None)
        self._changed.set()

    def _close(self, code: int) -> None:
        self._closing = code
        self._changed.set()


def _generates(body: JsonObject) -> bool:
    """Whether a message asks for a reply, or only to be prepared for. Raises `InvalidRequest`."""
    generate = body.get("generate")
    if not isinstance(generate, bool | None):
        raise InvalidRequest("'generate': must be true or false.", param="generate")
    if generate is False and body.get("conversation") is not None:
        raise InvalidRequest("'conversation': give it with the turn; it is not prepared for.", param="conversation")
    return generate is not False


def _items(body: JsonObject) -> list[object]:
    items = as_items(body.get("input"))
    return items if isinstance(items, list) else []


def _renderer(prepared: PreparedTurn) -> ResponsesStream:
    assert isinstance(prepared.stream, ResponsesStream)
    return prepared.stream


def _text_message(frame: bytes) -> Message:
    return {"type": "websocket.send", "text": frame.decode()}


def _socket_error(error: Exception) -> SocketError:
    told = wire_error(error)
    fault = SocketFault(type=told.openai_type, code=told.code, message=told.message, param=told.param)
    if told.retry_after_s is not None:
        fault = structs.replace(fault, headers={"retry-after": str(told.retry_after_s)})
    return SocketError(status=told.status, error=fault)
