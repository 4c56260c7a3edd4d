"""Giving owners back to the engine, in the background.

Removing an entry is synchronous; releasing its owner is not. At most one disposal is in flight for a session; one that
failed stays owed until a retry succeeds or the worker dies.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterable

from warmlane.clock import Clock
from warmlane.errors import EngineFault
from warmlane.sessions.session import ChatSession
from warmlane.sessions.waiting import wait_for_tasks

logger = logging.getLogger(__name__)

DISPOSAL_TIMEOUT_S = 5.0
"""Default bound of every wait for disposals."""


class Disposals:
    """In flight and owed disposals of one registry. `pending` counts both; all bookkeeping is synchronous."""

    def __init__(self, *, clock: Clock, timeout_s: float = DISPOSAL_TIMEOUT_S) -> None:
        self._clock = clock
        self.timeout_s = timeout_s
        self._in_flight: dict[ChatSession, asyncio.Task[Exception | None]] = {}
        self._owed: dict[ChatSession, None] = {}
        self._discharged: set[asyncio.Task[Exception | None]] = set()

    @property
    def pending(self) -> int:
        return len(self._in_flight) + len(self._owed)

    @property
    def owed(self) -> int:
        """Failed ones that wait for a retry."""
        return len(self._owed)

    def start(self, session: ChatSession) -> None:
        """Dispose `session` in the background, unless that is under way. A failure is logged and stays owed; so does a
        session started where no event loop runs."""
        if session in self._in_flight or session.disposed:
            return
        self._owed.pop(session, None)
        if session.dispose_locally():
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self._owed[session] = None
            return
        self._in_flight[session] = loop.create_task(self._dispose(session), name="dispose session")

    def retry_owed(self) -> None:
        """Start one retry of each owed session."""
        for session in list(self._owed):
            self.start(session)

    async def dispose(self, session: ChatSession) -> None:
        """Dispose `session` and wait; a disposal under way is joined. Raises what releasing raised, and `EngineFault`
        when it takes longer than the timeout; the rest stays owed."""
        self.start(session)
        task = self._in_flight.get(session)
        if task is None:
            return
        await wait_for_tasks([task], clock=self._clock, deadline=self._clock.now() + self.timeout_s)
        if not task.done():
            raise EngineFault(f"The engine did not release a session within {self.timeout_s:g} s.")
        error = None if task.cancelled() else task.result()
        if error is not None:
            raise error

    async def wait(self, sessions: Iterable[ChatSession]) -> None:
        """Until none of `sessions` is in flight, at most for the timeout. Nothing is retried, nothing raises."""
        tasks = [self._in_flight[session] for session in sessions if session in self._in_flight]
        await wait_for_tasks(tasks, clock=self._clock, deadline=self._clock.now() + self.timeout_s)

    async def flush(self, timeout_s: float = math.inf) -> None:
        """Until nothing is pending, but for what fails again: each owed session, those failing meanwhile included, is
        retried once; what is in flight is awaited and never doubled. Ends after `timeout_s`; never raises."""
        deadline = self._clock.now() + timeout_s
        retried: set[ChatSession] = set()
        while True:
            for session in [each for each in self._owed if each not in retried]:
                retried.add(session)
                self.start(session)
            if not self._in_flight or self._clock.now() >= deadline:
                return
            await wait_for_tasks(self._in_flight.values(), clock=self._clock, deadline=deadline, first=True)

    def discharge(self, generation: int) -> None:
        """The worker of `generation` died: what was to be released there is gone."""
        for session in [*self._in_flight, *self._owed]:
            session.forget_generation(generation)
            if session.owners:
                continue
            self._owed.pop(session, None)
            task = self._in_flight.pop(session, None)
            if task is None:
                session.dispose_locally()
            else:
                self._discharged.add(task)
                task.add_done_callback(self._discharged.discard)
                task.cancel()

    async def _dispose(self, session: ChatSession) -> Exception | None:
        failure: Exception | None = None
        try:
            await session.dispose()
        except Exception as error:
            failure = error
            logger.warning("a session's disposal failed and stays owed: %s: %s", type(error).__name__, error)
        finally:
            if self._in_flight.pop(session, None) is not None:
                if not session.disposed and not session.dispose_locally():
                    self._owed[session] = None
            else:
                session.dispose_locally()
        return failure
