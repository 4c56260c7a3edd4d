"""Paths without parameters, before those with any: `/v1/responses/compact` is no response of that name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send


class ExactPaths(BaseRoute):
    """Takes every request on a path of `routes` that has no parameter, by a method that no route of that very path has,
    and raises a 405 for it. To be the first route: one with a parameter would take the path for its value."""

    def __init__(self, routes: Iterable[BaseRoute]) -> None:
        methods: dict[str, frozenset[str]] = {}
        for route in routes:
            path: str = getattr(route, "path", "{")
            own: Iterable[str] | None = getattr(route, "methods", None)
            if "{" not in path and own is not None:
                methods[path] = methods.get(path, frozenset()) | frozenset(own)
        self._methods: Mapping[str, frozenset[str]] = methods

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        methods = self.methods_of(scope["path"]) if scope["type"] == "http" else None
        return (Match.NONE if methods is None or scope["method"] in methods else Match.FULL), {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        raise HTTPException(405)

    def methods_of(self, path: str) -> frozenset[str] | None:
        """The methods of a path without parameters; None of any other."""
        return self._methods.get(path)
