"""A WebSocket on an ASGI app, with the client's side in the test's hands."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from openai.types.responses import ResponsesServerEvent
from openresponses_types.types import WebSocketErrorEvent
from pydantic import TypeAdapter
from starlette.types import ASGIApp, Message

from support.edge import settle

EVENT: TypeAdapter[Any] = TypeAdapter(ResponsesServerEvent)


class Socket:
    """One connection. `closed` is the code the server closed it with."""

    def __init__(self, app: ASGIApp, path: str = "/v1/responses", *, headers: dict[str, str] | None = None) -> None:
        self.sent: list[Message] = []
        self.inbox: asyncio.Queue[Message] = asyncio.Queue()
        self.inbox.put_nowait({"type": "websocket.connect"})
        self._reading = asyncio.Event()
        self._reading.set()
        names = {"host": "127.0.0.1", **(headers or {})}
        scope = {
            "type": "websocket",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "scheme": "ws",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [(name.encode(), value.encode()) for name, value in names.items()],
            "client": ("127.0.0.1", 5000),
            "server": ("127.0.0.1", 8080),
            "subprotocols": [],
            "extensions": {"websocket.http.response": {}},
        }
        self.task = asyncio.ensure_future(app(scope, self.inbox.get, self._send))

    async def _send(self, message: Message) -> None:
        await self._reading.wait()
        self.sent.append(message)

    def block(self) -> None:
        """The client stops reading: writes do not return."""
        self._reading.clear()

    def say(self, body: dict[str, Any] | str | bytes) -> None:
        if isinstance(body, bytes):
            self.inbox.put_nowait({"type": "websocket.receive", "bytes": body})
            return
        text = body if isinstance(body, str) else json.dumps(body)
        self.inbox.put_nowait({"type": "websocket.receive", "text": text})

    def create(self, **fields: Any) -> None:
        self.say({"type": "response.create", "model": "tiny", "input": "hi", **fields})

    def leave(self) -> None:
        self.inbox.put_nowait({"type": "websocket.disconnect", "code": 1000})

    async def ask(self, **fields: Any) -> list[dict[str, Any]]:
        """The events of one turn that needs nothing more to run."""
        before = len(self.events)
        self.create(**fields)
        await settle()
        return self.events[before:]

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(message["text"]) for message in self.sent if message["type"] == "websocket.send"]

    @property
    def status(self) -> int | None:
        """Of a refusal before the handshake."""
        return next((m["status"] for m in self.sent if m["type"] == "websocket.http.response.start"), None)

    @property
    def refusal(self) -> dict[str, Any]:
        body = next(m["body"] for m in self.sent if m["type"] == "websocket.http.response.body")
        error: dict[str, Any] = json.loads(body)["error"]
        return error

    @property
    def closed(self) -> int | None:
        return next((m["code"] for m in self.sent if m["type"] == "websocket.close"), None)


@asynccontextmanager
async def connected(app: ASGIApp, **kwargs: Any) -> AsyncIterator[Socket]:
    socket = Socket(app, **kwargs)
    await settle()
    try:
        yield socket
    finally:
        socket.leave()
        await socket.task


def error_of(events: list[dict[str, Any]]) -> dict[str, Any]:
    assert len(events) == 1
    WebSocketErrorEvent.model_validate(events[0])
    EVENT.validate_python(events[0])
    assert events[0]["status"] >= 400
    error: dict[str, Any] = events[0]["error"]
    return error
