"""The ASGI application."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match

from warmlane.api import openapi
from warmlane.api.admin import data, health, models, sessions
from warmlane.api.chat import routes as chat
from warmlane.api.conversations import routes as conversations_routes
from warmlane.api.errors import HttpRefusal
from warmlane.api.exact_paths import ExactPaths
from warmlane.api.guard import Guard
from warmlane.api.messages import routes as messages
from warmlane.api.responses import routes as responses
from warmlane.api.settings import Edge, EdgeSettings
from warmlane.api.signing import Signer
from warmlane.clock import Clock, SystemClock
from warmlane.host.view import HostView
from warmlane.turns.archive import ResponseArchive
from warmlane.turns.conversations import ConversationArchive
from warmlane.turns.runs import RunArchive
from warmlane.turns.service import TurnService

Lifespan = Callable[[], AbstractAsyncContextManager[None]]
BeforeScrape = Callable[[], Awaitable[None]]


def create_app(
    *,
    turns: TurnService,
    archive: ResponseArchive,
    conversations: ConversationArchive,
    runs: RunArchive,
    host: HostView,
    settings: EdgeSettings | None = None,
    clock: Clock | None = None,
    signing_key: bytes | None = None,
    registry: CollectorRegistry | None = None,
    before_scrape: BeforeScrape | None = None,
    lifespan: Lifespan | None = None,
) -> FastAPI:
    """The application over one spine. Without a `signing_key` what is signed is known as long as the process lives.

    `lifespan` is entered before the first request and left after the last one. `registry` is what `/metrics` shows,
    after `before_scrape`; without one there is no such route.
    """
    edge = Edge(
        turns=turns,
        archive=archive,
        conversations=conversations,
        runs=runs,
        host=host,
        settings=settings or EdgeSettings(),
        clock=clock or SystemClock(),
        signer=Signer(signing_key),
    )
    return assemble(edge, registry=registry, before_scrape=before_scrape, lifespan=lifespan)


def assemble(
    edge: Edge,
    *,
    registry: CollectorRegistry | None = None,
    before_scrape: BeforeScrape | None = None,
    lifespan: Lifespan | None = None,
) -> FastAPI:
    """`create_app` for a caller that brings its own sources of time and ids."""

    @asynccontextmanager
    async def run(_: FastAPI) -> AsyncIterator[None]:
        if lifespan is None:
            yield
        else:
            async with lifespan():
                yield

    app = FastAPI(lifespan=run, openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    for dialect in (responses, messages, chat, conversations_routes):
        app.router.routes.extend(dialect.routes(edge))
    app.router.routes.extend(openapi.routes(edge, metrics=registry is not None))
    models.add_routes(app, edge)
    sessions.add_routes(app, edge)
    data.add_routes(app, edge)
    health.add_routes(app, edge, registry=registry, before_scrape=before_scrape)
    app.router.routes.insert(0, ExactPaths(app.router.routes))
    app.add_exception_handler(HTTPException, _unrouted)
    app.add_middleware(Guard, edge=edge)
    return app


async def _unrouted(request: Request, error: Exception) -> Response:
    """Raise what routing found in the terms of the edge; the guard tells it in the route's dialect."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    path = request.url.path[:256]
    if status == 405:
        allow = ", ".join(_allowed(request))
        raise HttpRefusal(405, f"{request.method} is not allowed on {path}.", code="method_not_allowed", allow=allow)
    if status == 404:
        raise HttpRefusal(404, f"There is no {path} here.", code="unknown_url")
    raise HttpRefusal(status, "The request could not be served.")


def _allowed(request: Request) -> list[str]:
    """The methods of the path as it is; of one that only a parameter matches, those of all that match."""
    routes: list[BaseRoute] = request.app.router.routes
    for route in routes:
        if isinstance(route, ExactPaths) and (exact := route.methods_of(request.scope["path"])) is not None:
            return sorted(exact)
    matching = [route for route in routes if route.matches(request.scope)[0] is not Match.NONE]
    return sorted({method for route in matching for method in getattr(route, "methods", None) or ()})
