"""POST /v1/messages and POST /v1/messages/count_tokens."""

from __future__ import annotations

from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from warmlane.api import jsonio
from warmlane.api.body import model_of, read_json
from warmlane.api.exchange import PreparedTurn, TurnEndpoint
from warmlane.api.fields import parse, refuse
from warmlane.api.guard import Caller, caller_of
from warmlane.api.headers import warning_headers
from warmlane.api.jsonio import JsonObject
from warmlane.api.messages.events import MessagesStream
from warmlane.api.messages.render import MESSAGE_PREFIX, render_reply
from warmlane.api.messages.request import (
    MessagesRequest,
    check_supported,
    input_messages,
    sampling_of,
    warnings_of,
)
from warmlane.api.messages.wire import TokenCount
from warmlane.api.settings import Edge
from warmlane.conversation.turn import Dialect, Outcome, TurnRequest


def routes(edge: Edge) -> list[BaseRoute]:
    return [
        Route("/v1/messages", TurnEndpoint(edge, _Preparer(edge)), methods=["POST"]),
        Route("/v1/messages/count_tokens", _CountTokens(edge), methods=["POST"]),
    ]


class _Preparer:
    def __init__(self, edge: Edge) -> None:
        self._edge = edge

    def __call__(self, body: JsonObject, caller: Caller) -> PreparedTurn:
        request = parse(MessagesRequest, body)
        if request.max_tokens is None:
            raise refuse("max_tokens", "is required.")
        turn, warnings = _turn(self._edge, request, caller)

        def answer(outcome: Outcome) -> bytes:
            return jsonio.encode(render_reply(turn.response_id, turn.model, outcome))

        stream = None
        if request.stream:
            stream = MessagesStream(message_id=turn.response_id, model=turn.model, request_id=caller.request_id)
        return PreparedTurn(request=turn, answer=answer, stream=stream, warnings=tuple(warnings))


class _CountTokens:
    """Takes no permit: nothing is generated."""

    def __init__(self, edge: Edge) -> None:
        self._edge = edge

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await read_json(scope, receive, max_bytes=self._edge.settings.max_body_bytes)
        model_of(body)
        turn, warnings = _turn(self._edge, parse(MessagesRequest, body), caller_of(scope))
        count = await self._edge.turns.count_tokens(turn)
        response = Response(jsonio.encode(TokenCount(count)), media_type="application/json")
        response.raw_headers.extend(warning_headers(warnings))
        await response(scope, receive, send)


def _turn(edge: Edge, request: MessagesRequest, caller: Caller) -> tuple[TurnRequest, list[str]]:
    """The turn, and the names of what was accepted without effect. Raises `InvalidRequest`."""
    check_supported(request)
    warnings = warnings_of(request)
    turn = TurnRequest(
        request_id=caller.request_id,
        response_id=MESSAGE_PREFIX + edge.new_token(),
        dialect=Dialect.MESSAGES,
        tenant=caller.tenant,
        domain=edge.turns.domain(caller.tenant, request.cache_salt),
        model=request.model,
        input=input_messages(request, warnings),
        sampling=sampling_of(request),
        max_output_tokens=request.max_tokens,
        stop=tuple(request.stop_sequences or ()),
        compare_to=request.diagnostics.previous_message_id if request.diagnostics else None,
    )
    return turn, warnings
