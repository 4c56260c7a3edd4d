"""A background response while this process attends it: its events for whoever follows, and their way into the store.

The store is written to beside the turn, never in its way: one that is slow or away delays only what it is to keep.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import structlog

from warmlane.api.settings import Edge
from warmlane.conversation.turn import TurnRequest
from warmlane.errors import Overloaded
from warmlane.turns.runs import LoggedEvent

FLUSH_EVENTS: Final = 128
"""How many events wait in memory before they are logged. A run whose server is killed has failed all the same."""

FLUSH_S: Final = 1.0
"""How long events wait for others to be logged with: who follows on another server reads them from the log."""

BATCH_EVENTS: Final = 1000
"""The most that are written at once, however many wait for a store that was away."""

FIRST_RETRY_S: Final = 1.0
LAST_RETRY_S: Final = 30.0
"""How long a store that refused a write is left alone: twice as long each time, up to this."""

_log = structlog.get_logger("warmlane.api")


@dataclass(slots=True)
class LiveRun:
    """A run this process attends. `warnings` are those known when it began; `events` are all it has had; `ended`: there
    will be no more, and its row says how it ended, unless the store is away."""

    warnings: tuple[str, ...] = ()
    events: list[LoggedEvent] = field(default_factory=list)
    ended: bool = False
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, frames: Iterable[bytes]) -> None:
        self.events += [LoggedEvent(len(self.events) + n, frame) for n, frame in enumerate(frames)]
        self._wake()

    def end(self) -> None:
        self.ended = True
        self._wake()

    async def finished(self) -> None:
        while not self.ended:
            await self._changed.wait()

    async def follow(self, after: int) -> AsyncIterator[LoggedEvent]:
        """The events behind number `after`, those to come included."""
        at = after + 1
        while True:
            while at < len(self.events):
                yield self.events[at]
                at += 1
            if self.ended:
                return
            await self._changed.wait()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class RunWriter:
    """Writes one run's progress and events. Inside `beside` in a task of its own, which `due` wakes; after it by
    `flush`."""

    def __init__(self, edge: Edge, request: TurnRequest, run: LiveRun) -> None:
        self._edge = edge
        self._request = request
        self._run = run
        self._n_logged = 0
        self._flushed_s = edge.clock.now()
        self._started = False
        self._told_started = False
        self._stopping = False
        self._awake = asyncio.Event()
        self._rested = asyncio.Event()

    @asynccontextmanager
    async def beside(self) -> AsyncIterator[None]:
        """Write what comes due while the block runs. A write that is under way at its end is waited for."""
        task = asyncio.create_task(self._write(), name=f"log {self._request.response_id}")
        try:
            yield
        finally:
            self._stopping = True
            self._awake.set()
            self._rested.set()
            await task

    def started(self) -> None:
        """The turn is being answered now."""
        self._started = True
        self.due()

    def due(self) -> None:
        """There may be something to write. To be called when the run had events."""
        if self._owes_progress or self._owes_events:
            self._awake.set()

    async def flush(self) -> bool:
        """Log what the run has had by now. False if the store did not take it: the rest then stays unlogged."""
        until = len(self._run.events)
        self._flushed_s = self._edge.clock.now()
        try:
            while batch := self._run.events[self._n_logged : min(self._n_logged + BATCH_EVENTS, until)]:
                await self._edge.runs.append(self._request.response_id, self._request.tenant, batch)
                self._n_logged += len(batch)
        except Overloaded as unavailable:
            _log.warning("events of a run were not stored", error=unavailable.message)
            return False
        return True

    @property
    def _owes_progress(self) -> bool:
        return self._started and not self._told_started

    @property
    def _owes_events(self) -> bool:
        n_waiting = len(self._run.events) - self._n_logged
        return n_waiting >= FLUSH_EVENTS or (n_waiting > 0 and self._edge.clock.now() - self._flushed_s >= FLUSH_S)

    async def _write(self) -> None:
        retry_s = FIRST_RETRY_S
        while True:
            await self._awake.wait()
            self._awake.clear()
            if self._stopping:
                return
            if await self._tell_progress() and (not self._owes_events or await self.flush()):
                retry_s = FIRST_RETRY_S
            else:
                await self._rest(retry_s)
                retry_s = min(2 * retry_s, LAST_RETRY_S)
                self._awake.set()

    async def _tell_progress(self) -> bool:
        if not self._owes_progress:
            return True
        try:
            await self._edge.runs.progress(self._request.response_id, self._request.tenant)
        except Overloaded as unavailable:
            _log.warning("the progress of a run was not stored", error=unavailable.message)
            return False
        self._told_started = True
        return True

    async def _rest(self, seconds: float) -> None:
        clock = self._edge.clock
        timer = clock.call_at(clock.now() + seconds, self._rested.set)
        try:
            await self._rested.wait()
        finally:
            timer.cancel()
            if not self._stopping:
                self._rested.clear()
