"""POST /v1/responses, in the foreground and in the background."""

from __future__ import annotations

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from warmlane.api import jsonio
from warmlane.api.body import read_request
from warmlane.api.exchange import TurnEndpoint
from warmlane.api.guard import Caller, caller_of
from warmlane.api.jsonio import JsonObject
from warmlane.api.responses.background import BackgroundRuns
from warmlane.api.responses.completion import Completion, may_cut
from warmlane.api.responses.following import EventsResponse
from warmlane.api.responses.turns import Preparer
from warmlane.api.settings import Edge


class CreateEndpoint:
    """The ASGI app of the route. A background response is answered as soon as it waits; its turn goes on whatever the
    connection does."""

    def __init__(self, edge: Edge, preparer: Preparer, runs: BackgroundRuns) -> None:
        self._edge = edge
        self._preparer = preparer
        self._runs = runs
        self._complete = Completion(edge, preparer, cuts=may_cut)
        self._turn = TurnEndpoint(edge, preparer, complete=self._complete)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        model, body = await read_request(self._edge, scope, receive)
        if body.get("background") is True:
            response = await self._begin(model, body, caller_of(scope))
            await response(scope, receive, send)
        else:
            await self._turn.answer(model, body, scope, receive, send)

    async def _begin(self, model: str, body: JsonObject, caller: Caller) -> Response:
        permit = self._edge.turns.reserve(model, caller.tenant)
        try:
            body, warnings = await self._complete(body, caller)
            prepared, queued = self._preparer.prepare_background(body, caller)
            run = await self._runs.begin(prepared, permit)
        except BaseException:
            permit.release()
            raise
        headers = prepared.headers((*warnings, *run.warnings))
        if body.get("stream") is True:
            return EventsResponse(self._edge, run.follow(-1), headers)
        response = Response(jsonio.encode(queued), media_type="application/json")
        response.raw_headers.extend(headers)
        return response
