"""The route of the document."""

from __future__ import annotations

import functools

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from warmlane.api import jsonio
from warmlane.api.openapi.catalogue import METRICS, OPERATIONS
from warmlane.api.openapi.document import document
from warmlane.api.settings import Edge


def routes(edge: Edge, *, metrics: bool) -> list[BaseRoute]:
    """`metrics`: whether there is a route of that name."""
    operations = (*OPERATIONS, METRICS) if metrics else OPERATIONS

    @functools.cache
    def written(needs_key: bool) -> bytes:
        return jsonio.encode(document(operations, needs_key=needs_key))

    async def tell(_: Request) -> Response:
        return Response(written(len(edge.settings.keys) > 0), media_type="application/json")

    return [Route("/openapi.json", tell, methods=["GET"])]
