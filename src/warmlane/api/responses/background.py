"""Responses answered in the background: begun by one request, told to any number of others, cancelled by name.

    POST {background} → row `queued` → turn, attended by a task of the host's → its events logged → row ended

Whoever follows a run that this process attends reads its events as they come; of any other, what the store has of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field, replace
from typing import cast

import msgspec
import structlog

from warmlane.api import jsonio
from warmlane.api.errors import WireError, is_bug, wire_error
from warmlane.api.exchange import PreparedTurn
from warmlane.api.guard import log_unexpected
from warmlane.api.responses.events import ResponsesStream
from warmlane.api.responses.wire import ResponseFault
from warmlane.api.settings import Edge
from warmlane.conversation.events import Failed, Finished, Loading, Started, TurnEvent, Validated
from warmlane.conversation.turn import TurnRequest
from warmlane.errors import Overloaded
from warmlane.turns.cancel import TurnCancelled
from warmlane.turns.runs import LoggedEvent
from warmlane.turns.service import TurnPermit
from warmlane.turns.stream import TurnStream

FLUSH_EVENTS = 128
"""How many events wait in memory before they are logged. A run whose server is killed has failed all the same."""

_log = structlog.get_logger("warmlane.api")


def event_json(_: str, event: msgspec.Struct) -> bytes:
    """How events are logged: as the JSON of one line."""
    return jsonio.encode(event)


@dataclass(slots=True)
class LiveRun:
    """A run this process attends. `events` are all it has had; `ended`: there will be no more, and its row says how it
    ended."""

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


class BackgroundRuns:
    """The runs of this process."""

    def __init__(self, edge: Edge) -> None:
        self._edge = edge
        self._live: dict[tuple[str, str], LiveRun] = {}

    async def begin(self, prepared: PreparedTurn, permit: TurnPermit) -> LiveRun:
        """Start the turn, once its row is there. Raises what makes the request unsound; there is no row then."""
        request, runs = prepared.request, self._edge.runs
        await runs.begin(request)
        try:
            stream = self._edge.turns.start(request, permit)
            first = await anext(stream)
            if isinstance(first, Failed):
                stream.close()
                raise first.error
        except BaseException:
            await self._edge.archive.delete(request.response_id, request.tenant)
            raise
        run = self._live[request.tenant, request.response_id] = LiveRun()
        renderer = cast(ResponsesStream, prepared.stream)
        run.add(renderer.opening())
        attended = _Attended(self._edge, request, stream, renderer, run)
        self._edge.turns.attend(self._attend(attended, first), name=f"run {request.response_id}")
        return run

    def live(self, response_id: str, tenant: str) -> LiveRun | None:
        return self._live.get((tenant, response_id))

    async def cancel(self, response_id: str, tenant: str) -> None:
        """Have a run of this process stop, and wait until it has. A no-op for one that has ended."""
        run = self.live(response_id, tenant)
        if run is not None:
            self._edge.turns.cancel(response_id, tenant)
            await run.finished()

    async def follow(self, response_id: str, tenant: str, after: int) -> AsyncIterator[LoggedEvent]:
        """Its events behind number `after`. Raises `ResponseNotFound` and `StoreUnavailable`."""
        run = self.live(response_id, tenant)
        if run is not None:
            async for event in run.follow(after):
                yield event
            return
        while page := await self._edge.runs.events(response_id, tenant, after=after):
            for event in page:
                yield event
            after = page[-1].sequence

    async def _attend(self, attended: _Attended, first: TurnEvent) -> None:
        try:
            await attended.run_to_its_end(first)
        except Exception as error:
            log_unexpected(error, attended.request.request_id)
        finally:
            attended.stream.close()
            attended.run.end()
            del self._live[attended.request.tenant, attended.request.response_id]


@dataclass(slots=True)
class _Attended:
    """A running turn, the renderer of its events and where they go. `logged` is how many of them the store has."""

    edge: Edge
    request: TurnRequest
    stream: TurnStream
    renderer: ResponsesStream
    run: LiveRun
    logged: int = 0

    async def run_to_its_end(self, first: TurnEvent) -> None:
        event = first
        while True:
            match event:
                case Finished():
                    self.run.add(self.renderer.event(event))
                    if await self._flush():
                        self.stream.accept()
                    return
                case Failed():
                    await self._failed(event)
                    return
                case Started():
                    await self._tell_progress()
                    self.run.add(self.renderer.event(event))
                case Loading() | Validated():
                    pass
                case _:
                    self.run.add(self.renderer.event(event))
            if len(self.run.events) - self.logged >= FLUSH_EVENTS:
                await self._flush()
            event = await anext(self.stream)

    async def _failed(self, failed: Failed) -> None:
        if is_bug(failed.error):
            log_unexpected(failed.error, self.request.request_id)
        cancelled = isinstance(failed.error, TurnCancelled)
        told = replace(wire_error(failed.error), spent=failed.usage)
        self.run.add(self.renderer.cancelled(failed.usage) if cancelled else self.renderer.failure(told))
        try:
            fault = None if cancelled else msgspec.json.encode(_fault(told))
            await self.edge.runs.end(self.request.response_id, self.request.tenant, cancelled=cancelled, error=fault)
        except Overloaded as unavailable:
            _log.warning("the end of a run was not stored", error=unavailable.message)
        await self._flush()

    async def _tell_progress(self) -> None:
        try:
            await self.edge.runs.progress(self.request.response_id, self.request.tenant)
        except Overloaded as unavailable:
            _log.warning("the progress of a run was not stored", error=unavailable.message)

    async def _flush(self) -> bool:
        """Log what is not logged yet. False if the store did not take it; it is tried again with the next."""
        events = self.run.events[self.logged :]
        try:
            await self.edge.runs.append(self.request.response_id, self.request.tenant, events)
        except Overloaded as unavailable:
            _log.warning("events of a run were not stored", error=unavailable.message)
            return False
        self.logged += len(events)
        return True


def _fault(told: WireError) -> ResponseFault:
    return ResponseFault(code=told.code or "server_error", message=told.message)
