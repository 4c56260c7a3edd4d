"""A turn's cancel flag: set by a disconnect, a deadline or a shutdown, heeded until the turn commits.

The turn's task is never cancelled from outside. It opens `heeded()` around the stretches that may be aborted; work
after the commit runs outside of them, so a flag set too late changes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from warmlane.clock import Clock, Timer
from warmlane.errors import WarmlaneError


class TurnCancelled(WarmlaneError):
    """The reader went away before the turn had committed."""


class CancelFlag:
    """Set at most once; the first error wins and is what an aborted stretch raises."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._error: WarmlaneError | None = None
        self._scope: asyncio.Timeout | None = None

    @property
    def error(self) -> WarmlaneError | None:
        return self._error

    def set(self, error: WarmlaneError) -> None:
        """Abort the stretch that is open, or the next one to be opened."""
        if self._error is not None:
            return
        self._error = error
        if self._scope is not None:
            self._scope.reschedule(asyncio.get_running_loop().time())

    def set_at(self, when: float, error: WarmlaneError) -> Timer:
        """Set the flag at a clock time, unless the returned timer is cancelled first."""
        return self._clock.call_at(when, lambda: self.set(error))

    @asynccontextmanager
    async def heeded(self) -> AsyncIterator[None]:
        """Inside, a set flag cancels what is awaited; the block then raises the flag's error."""
        if self._error is not None:
            raise self._error
        try:
            async with asyncio.timeout(None) as scope:
                self._scope = scope
                yield
        except TimeoutError:
            if self._error is not None and scope.expired():
                raise self._error from None
            raise
        finally:
            self._scope = None
