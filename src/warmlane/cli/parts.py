"""What the process needs of the server it runs, whoever builds it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from starlette.types import ASGIApp

from warmlane.config import Settings


class ServerParts(Protocol):
    """A server that is ready for turns."""

    @property
    def app(self) -> ASGIApp:
        """What answers HTTP."""
        ...

    def reload(self) -> None:
        """Read the key file again. A bad one is logged and changes nothing."""
        ...

    def begin_drain(self) -> None:
        """Take no more turns: `/ready` answers 503, new and waiting turns end in `Unavailable`. HTTP goes on, so that
        load balancers see it."""
        ...

    async def drained(self, grace_s: float) -> None:
        """Return when no turn runs; turns that still do after `grace_s` seconds are stopped."""
        ...

    async def close(self) -> None:
        """Stop the engine, then close the store."""
        ...


Build = Callable[[Settings], Awaitable[ServerParts]]
"""Loads the model and opens the store. Raises `ConfigError`; cleans up after itself when it raises or is cancelled."""
