"""/health (the process lives), /ready (a turn could be taken now), /metrics, and the harmless root."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
from fastapi import FastAPI, Request
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.responses import Response

import warmlane
from warmlane.api import jsonio
from warmlane.api.errors import HttpRefusal
from warmlane.api.guard import caller_of
from warmlane.api.settings import Edge
from warmlane.host.view import Readiness

_PROBE = ["GET", "HEAD"]


class Health(msgspec.Struct, frozen=True):
    status: str


class Root(msgspec.Struct, frozen=True):
    name: str
    version: str


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """The lane's counts, so that a probe can tell a long queue from a full one. `limit` is `max_waiting`."""

    ready: bool
    reason: str
    active: int
    waiting: int
    permits: int
    capacity: int
    limit: int | None


def add_routes(
    app: FastAPI,
    edge: Edge,
    *,
    registry: CollectorRegistry | None,
    before_scrape: Callable[[], Awaitable[None]] | None = None,
) -> None:
    @app.api_route("/", methods=_PROBE, response_model=None)
    async def root() -> Response:
        return _json(Root("warmlane", warmlane.__version__))

    @app.api_route("/health", methods=_PROBE, response_model=None)
    async def health() -> Response:
        return _json(Health("ok"))

    @app.api_route("/ready", methods=_PROBE, response_model=None)
    async def ready() -> Response:
        readiness = edge.host.readiness()
        response = _json(_ready(readiness), status=200 if readiness.ready else 503)
        if not readiness.ready:
            response.headers["retry-after"] = "1"
        return response

    if registry is not None:

        @app.api_route("/metrics", methods=_PROBE, response_model=None)
        async def metrics(request: Request) -> Response:
            if not caller_of(request.scope).identity.admin:
                raise HttpRefusal(403, "The metrics are of all tenants; ask with the admin key.", code="admin_only")
            if before_scrape is not None:
                await before_scrape()
            encoder, media_type = choose_encoder(request.headers.get("accept", ""))
            return Response(encoder(registry), headers={"content-type": media_type})


def _ready(readiness: Readiness) -> Ready:
    return Ready(
        ready=readiness.ready,
        reason=readiness.reason,
        active=readiness.active,
        waiting=readiness.waiting,
        permits=readiness.permits,
        capacity=readiness.capacity,
        limit=readiness.limit,
    )


def _json(value: msgspec.Struct, *, status: int = 200) -> Response:
    return Response(jsonio.encode(value), status_code=status, media_type="application/json")
