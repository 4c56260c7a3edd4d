"""The outermost layer: request ids, the Host and key checks, and errors in the dialect of the route."""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from warmlane.api.auth import Identity
from warmlane.api.body import ClientGone
from warmlane.api.errors import HttpRefusal, WireError, envelope, error_headers, is_bug, wire_error
from warmlane.api.settings import Edge
from warmlane.errors import WarmlaneError

OPEN_PATHS = frozenset({"/", "/health", "/ready", "/openapi.json"})
"""Answered without a key: probes and tools that read the document have none."""

WEBSOCKET_PATHS = frozenset({"/v1/responses"})

_CALLER = "warmlane.caller"
_log = structlog.get_logger("warmlane.api")


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, and under which id the answer is told and logged."""

    request_id: str
    identity: Identity

    @property
    def tenant(self) -> str:
        return self.identity.tenant


def caller_of(scope: Scope) -> Caller:
    """The caller the guard found for this request."""
    return cast(Caller, scope[_CALLER])


def speaks_anthropic(scope: Scope) -> bool:
    """Whether errors of this request take Anthropic's envelope."""
    path: str = scope["path"]
    if path == "/v1/messages" or path.startswith("/v1/messages/"):
        return True
    return path.startswith("/v1/models") and any(name == b"anthropic-version" for name, _ in scope["headers"])


def log_unexpected(error: Exception, request_id: str) -> None:
    """Log a bug: its type and where it was raised. Not its message, which may quote a prompt."""
    frames = traceback.format_tb(error.__traceback__)
    _log.error("unexpected error", request_id=request_id, error=type(error).__name__, stack="".join(frames))


class Guard:
    """ASGI middleware around every route. No input gets past it as an exception; an answer that broke off is left
    unfinished, upon which the server closes the connection."""

    def __init__(self, app: ASGIApp, *, edge: Edge) -> None:
        self._app = app
        self._edge = edge

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._websocket(scope, receive, send)
        else:
            await self._http(scope, receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        reply = _Reply(scope, send, edge=self._edge)
        try:
            _check_host(scope["headers"], self._edge.settings.allowed_hosts)
            open_to_all = scope["path"] in OPEN_PATHS
            identity = Identity("") if open_to_all else self._edge.settings.keys.identify(scope["headers"])
            scope[_CALLER] = Caller(reply.request_id, identity)
            await self._app(scope, receive, reply.send)
        except ClientGone:
            return
        except Exception as error:
            if reply.begun or is_bug(error):
                log_unexpected(error, reply.request_id)
            if not reply.begun:
                await reply.refuse(wire_error(error))

    async def _websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse before the handshake, with a status, so that a client falls back to HTTP at once."""
        try:
            if scope["path"] not in WEBSOCKET_PATHS:
                raise HttpRefusal(426, "WebSockets are not served here; use HTTP.", code="websocket_not_supported")
            _check_host(scope["headers"], self._edge.settings.allowed_hosts)
            _check_origin(scope["headers"])
            identity = self._edge.settings.keys.identify(scope["headers"])
        except WarmlaneError as error:
            await _refuse_websocket(wire_error(error), scope, send)
            return
        scope[_CALLER] = Caller(f"req_{self._edge.new_token()}", identity)
        await self._app(scope, receive, send)


class _Reply:
    """The sending side of one request: stamps the common headers, and knows whether an answer has begun."""

    def __init__(self, scope: Scope, send: Send, *, edge: Edge) -> None:
        self.request_id = f"req_{edge.new_token()}"
        self.begun = False
        self._anthropic = speaks_anthropic(scope)
        self._send = send
        self._clock = edge.clock
        self._started_s = edge.clock.now()

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.begun = True
            message = {**message, "headers": [*message.get("headers", ()), *self._headers()]}
        await self._send(message)

    async def refuse(self, error: WireError) -> None:
        body = envelope(error, anthropic=self._anthropic, request_id=self.request_id)
        headers = [*error_headers(error), (b"content-length", str(len(body)).encode())]
        await self.send({"type": "http.response.start", "status": error.status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})

    def _headers(self) -> list[tuple[bytes, bytes]]:
        request_id = self.request_id.encode()
        headers = [(b"x-request-id", request_id)]
        if self._anthropic:
            return [*headers, (b"request-id", request_id)]
        elapsed_ms = max(0, round((self._clock.now() - self._started_s) * 1000))
        return [*headers, (b"openai-processing-ms", str(elapsed_ms).encode()), (b"openai-version", b"2020-10-01")]


def _check_host(headers: Iterable[tuple[bytes, bytes]], allowed: frozenset[str] | None) -> None:
    if allowed is None:
        return
    host = next((value.decode("latin-1") for name, value in headers if name == b"host"), "")
    if host_name(host) not in allowed:
        raise HttpRefusal(403, "This Host is not served here.", code="host_not_allowed")


def _check_origin(headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Browsers let a page of any origin open a WebSocket, and say which: only one of this very host may."""
    sent = {name: value.decode("latin-1") for name, value in headers if name in (b"origin", b"host")}
    origin = sent.get(b"origin")
    if origin is not None and origin.partition("://")[2].lower() != sent.get(b"host", "").lower():
        raise HttpRefusal(403, "A page of another origin may not use this server.", code="origin_not_allowed")


def host_name(host: str) -> str:
    """The name in a `Host` header, without port and brackets, in lower case."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].removesuffix(".")


async def _refuse_websocket(error: WireError, scope: Scope, send: Send) -> None:
    if "websocket.http.response" not in (scope.get("extensions") or {}):
        await send({"type": "websocket.close", "code": 1000})
        return
    body = envelope(error, anthropic=False, request_id="")
    headers = [*error_headers(error), (b"content-length", str(len(body)).encode())]
    await send({"type": "websocket.http.response.start", "status": error.status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": body})
