"""Responses after their turn: retrieve, delete, list what they answered; and counting a prompt without a turn."""

from __future__ import annotations

from typing import Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from warmlane.api import jsonio
from warmlane.api.body import read_request
from warmlane.api.guard import caller_of
from warmlane.api.headers import ignored_in, warning_headers
from warmlane.api.responses.background import BackgroundRuns
from warmlane.api.responses.completion import Completion, may_cut
from warmlane.api.responses.following import EventsResponse
from warmlane.api.responses.items import PAGE_PARAMETERS, input_items, page
from warmlane.api.responses.render import ResponseFacts
from warmlane.api.responses.replay import archived_response
from warmlane.api.responses.turns import Preparer
from warmlane.api.settings import Edge
from warmlane.errors import InvalidRequest
from warmlane.turns.archive import Archived


class Deleted(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["response"] = "response"
    deleted: bool = True


class TokenCount(msgspec.Struct, frozen=True, kw_only=True):
    object: Literal["response.input_tokens"] = "response.input_tokens"
    input_tokens: int


def stored_routes(edge: Edge, runs: BackgroundRuns) -> list[BaseRoute]:
    stored = _Stored(edge, runs)
    return [
        Route("/v1/responses/input_tokens", _InputTokens(edge), methods=["POST"]),
        Route("/v1/responses/{response_id}", stored.retrieve, methods=["GET"]),
        Route("/v1/responses/{response_id}", stored.delete, methods=["DELETE"]),
        Route("/v1/responses/{response_id}/cancel", stored.cancel, methods=["POST"]),
        Route("/v1/responses/{response_id}/input_items", stored.list_input, methods=["GET"]),
    ]


class _Stored:
    def __init__(self, edge: Edge, runs: BackgroundRuns) -> None:
        self._edge = edge
        self._archive = edge.archive
        self._runs = runs

    async def retrieve(self, request: Request) -> Response:
        archived = await self._found(request)
        query = request.query_params
        if not _asks_for_stream(query.get("stream")):
            response = _json(archived_response(archived))
            response.raw_headers.extend(warning_headers(ignored_in(query, known=("stream",))))
            return response
        ignored = warning_headers(ignored_in(query, known=("stream", "starting_after")))
        if not ResponseFacts.from_echo(archived.echo).background:
            raise InvalidRequest("'stream': only background responses can be streamed again.", param="stream")
        after = _starting_after(query.get("starting_after"))
        return EventsResponse(self._edge, self._runs.follow(*_whose(request), after), ignored, after=after)

    async def cancel(self, request: Request) -> Response:
        archived = await self._found(request)
        if not ResponseFacts.from_echo(archived.echo).background:
            raise InvalidRequest("Only a background response can be cancelled.", param="response_id")
        await self._runs.cancel(*_whose(request))
        return _json(archived_response(await self._found(request)))

    async def delete(self, request: Request) -> Response:
        await self._archive.delete(*_whose(request))
        return _json(Deleted(id=_id(request)))

    async def list_input(self, request: Request) -> Response:
        archived = await self._found(request)
        messages = archived.input if archived.outcome is None else await self._archive.conversation(*_whose(request))
        query = request.query_params
        items = input_items(_id(request), messages)
        response = _json(page(items, limit=query.get("limit"), order=query.get("order"), after=query.get("after")))
        response.raw_headers.extend(warning_headers(ignored_in(query, known=PAGE_PARAMETERS)))
        return response

    async def _found(self, request: Request) -> Archived:
        return await self._archive.retrieve(*_whose(request))


def _asks_for_stream(value: str | None) -> bool:
    if value is not None and value.lower() not in ("true", "false"):
        raise InvalidRequest("'stream': must be true or false.", param="stream")
    return value is not None and value.lower() == "true"


def _starting_after(value: str | None) -> int:
    if value is None:
        return -1
    if not (value.isascii() and value.isdecimal() and len(value) < 12):
        raise InvalidRequest("'starting_after': must be the sequence number of an event.", param="starting_after")
    return int(value)


class _InputTokens:
    """Takes no permit: nothing is generated."""

    def __init__(self, edge: Edge) -> None:
        self._edge = edge
        self._prepare = Preparer(edge)
        self._complete = Completion(edge, self._prepare, cuts=may_cut)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        _, body = await read_request(self._edge, scope, receive)
        body, warnings = await self._complete(body, caller_of(scope))
        prepared = self._prepare(body, caller_of(scope))
        count = TokenCount(input_tokens=await self._edge.turns.count_tokens(prepared.request))
        response = _json(count)
        response.raw_headers.extend(warning_headers((*prepared.warnings, *warnings)))
        await response(scope, receive, send)


def _whose(request: Request) -> tuple[str, str]:
    return _id(request), caller_of(request.scope).tenant


def _id(request: Request) -> str:
    return str(request.path_params["response_id"])[:256]


def _json(value: msgspec.Struct) -> Response:
    return Response(jsonio.encode(value), media_type="application/json")
