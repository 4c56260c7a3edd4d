"""The routes of the Responses API."""

from __future__ import annotations

from starlette.routing import BaseRoute, Route, WebSocketRoute

from warmlane.api.exchange import TurnEndpoint
from warmlane.api.responses.completion import Completion, may_cut
from warmlane.api.responses.socket import ResponsesSocket
from warmlane.api.responses.stored import stored_routes
from warmlane.api.responses.turns import Preparer
from warmlane.api.settings import Edge


def routes(edge: Edge) -> list[BaseRoute]:
    preparer = Preparer(edge)
    compact = preparer.prepare_compaction
    complete = Completion(edge, preparer, cuts=may_cut)
    create_turn = TurnEndpoint(edge, preparer, complete=complete)
    compact_turn = TurnEndpoint(edge, compact, complete=Completion(edge, compact, cuts=lambda _: True))
    return [
        Route("/v1/responses", create_turn, methods=["POST"]),
        WebSocketRoute("/v1/responses", ResponsesSocket(edge, preparer, complete)),
        Route("/v1/responses/compact", compact_turn, methods=["POST"]),
        *stored_routes(edge),
    ]
