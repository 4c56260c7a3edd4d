"""The routes of the Responses API."""

from __future__ import annotations

from starlette.routing import BaseRoute, Route, WebSocketRoute

from warmlane.api.exchange import TurnEndpoint
from warmlane.api.responses.background import BackgroundRuns
from warmlane.api.responses.completion import Completion
from warmlane.api.responses.create import CreateEndpoint
from warmlane.api.responses.socket import ResponsesSocket
from warmlane.api.responses.stored import stored_routes
from warmlane.api.responses.turns import Preparer
from warmlane.api.responses.unfold import Unfolded
from warmlane.api.settings import Edge


def routes(edge: Edge) -> list[BaseRoute]:
    preparer, runs = Preparer(edge), BackgroundRuns(edge)
    compact = preparer.prepare_compaction
    whole = Unfolded(edge, Completion(edge, compact, cuts=lambda _: True))
    compact_turn = TurnEndpoint(edge, compact, complete=whole)
    return [
        Route("/v1/responses", CreateEndpoint(edge, preparer, runs), methods=["POST"]),
        WebSocketRoute("/v1/responses", ResponsesSocket(edge, preparer)),
        Route("/v1/responses/compact", compact_turn, methods=["POST"]),
        *stored_routes(edge, runs),
    ]
