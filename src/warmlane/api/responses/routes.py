"""The routes of the Responses API."""

from __future__ import annotations

from starlette.routing import BaseRoute, Route

from warmlane.api.exchange import TurnEndpoint
from warmlane.api.responses.stored import stored_routes
from warmlane.api.responses.turns import Preparer
from warmlane.api.settings import Edge


def routes(edge: Edge) -> list[BaseRoute]:
    return [Route("/v1/responses", TurnEndpoint(edge, Preparer(edge)), methods=["POST"]), *stored_routes(edge)]
