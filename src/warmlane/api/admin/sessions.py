"""GET /v1/sessions and DELETE /v1/sessions/{id}: what is warm, without a word of it, and how to end it."""

from __future__ import annotations

from typing import Literal

import msgspec
from fastapi import FastAPI, Request
from starlette.responses import Response

from warmlane.api import jsonio
from warmlane.api.guard import caller_of
from warmlane.api.settings import Edge
from warmlane.errors import SessionNotFound


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """`id` is the response a next turn would name, `age_s` the seconds since the last turn, `tokens` what is cached."""

    id: str
    object: Literal["session"] = "session"
    model: str
    age_s: float
    tokens: int


class Sessions(msgspec.Struct, frozen=True, kw_only=True):
    object: Literal["list"] = "list"
    data: tuple[Session, ...]


class Deleted(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["session"] = "session"
    deleted: bool = True


def add_routes(app: FastAPI, edge: Edge) -> None:
    @app.api_route("/v1/sessions", methods=["GET", "HEAD"], response_model=None)
    async def list_sessions(request: Request) -> Response:
        cards = edge.host.sessions(caller_of(request.scope).identity.sees)
        sessions = tuple(Session(id=c.id, model=c.model, age_s=round(c.age_s, 3), tokens=c.tokens) for c in cards)
        return _json(Sessions(data=sessions))

    @app.delete("/v1/sessions/{session_id:path}", response_model=None)
    async def end_session(request: Request, session_id: str) -> Response:
        if not edge.host.end_session(session_id, caller_of(request.scope).identity.sees):
            raise SessionNotFound(session_id[:256])
        return _json(Deleted(id=session_id))


def _json(value: msgspec.Struct) -> Response:
    return Response(jsonio.encode(value), media_type="application/json")
