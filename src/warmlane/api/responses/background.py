"""Responses answered in the background: begun by one request, told to any number of others, cancelled by name.

    POST {background} → row `queued` → turn, attended by a task of the host's → its events logged → row ended

Whoever follows a run that this process attends reads its events as they come; of any other, as they reach the store.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import cast

import msgspec
import structlog

from warmlane.api import jsonio
from warmlane.api.errors import is_bug, wire_error
from warmlane.api.exchange import PreparedTurn
from warmlane.api.guard import log_unexpected
from warmlane.api.responses.broken import Broken, broken_off, fault_of
from warmlane.api.responses.events import ResponsesStream
from warmlane.api.responses.live import LiveRun, RunWriter
from warmlane.api.responses.render import ResponseFacts, render_response
from warmlane.api.responses.replay import ended_elsewhere, ending, replay
from warmlane.api.settings import Edge
from warmlane.conversation.events import Failed, Finished, Loading, Started, TurnEvent, Validated
from warmlane.conversation.turn import TurnRequest
from warmlane.errors import Overloaded, ResponseNotFound
from warmlane.turns.cancel import TurnCancelled
from warmlane.turns.runs import LoggedEvent
from warmlane.turns.service import TurnPermit
from warmlane.turns.stream import TurnStream

_log = structlog.get_logger("warmlane.api")


def event_json(_: str, event: msgspec.Struct) -> bytes:
    """How events are logged: as the JSON of one line."""
    return jsonio.encode(event)


class BackgroundRuns:
    """The runs of this process."""

    def __init__(self, edge: Edge) -> None:
        self._edge = edge
        self._live: dict[tuple[str, str], LiveRun] = {}

    async def begin(self, prepared: PreparedTurn, permit: TurnPermit) -> LiveRun:
        """Start the turn, once its row is there. Raises what makes the request unsound; there is no row then, or where
        the store has gone meanwhile one that has failed."""
        request = prepared.request
        await self._edge.runs.begin(request)
        try:
            stream = self._edge.turns.start(request, permit)
            first = await anext(stream)
            if isinstance(first, Failed):
                stream.close()
                raise first.error
        except BaseException as error:
            await self._take_back(request, error)
            self._edge.runs.leave(request.response_id, request.tenant)
            raise
        run = self._live[request.tenant, request.response_id] = LiveRun(_warnings(first))
        renderer = cast(ResponsesStream, prepared.stream)
        run.add(renderer.opening())
        attended = _Attended(self._edge, request, stream, renderer, run, RunWriter(self._edge, request, run))
        self._edge.turns.attend(self._attend(attended, first), name=f"run {request.response_id}")
        return run

    def live(self, response_id: str, tenant: str) -> LiveRun | None:
        return self._live.get((tenant, response_id))

    async def cancel(self, response_id: str, tenant: str) -> None:
        """Have a run stop, and wait until it has; for one of another server at most `ELSEWHERE_S`. A no-op for one that
        has ended. Raises `ResponseNotFound` and `StoreUnavailable`."""
        run = self.live(response_id, tenant)
        if run is not None:
            self._edge.turns.cancel(response_id, tenant)
            await run.finished()
        elif await self._edge.runs.ask_to_cancel(response_id, tenant):
            await ended_elsewhere(self._edge, response_id, tenant)

    async def follow(self, response_id: str, tenant: str, after: int) -> AsyncIterator[LoggedEvent]:
        """Its events behind number `after`. Raises `ResponseNotFound` and `StoreUnavailable`."""
        run = self.live(response_id, tenant)
        events = replay(self._edge, response_id, tenant, after) if run is None else run.follow(after)
        async for event in events:
            yield event

    async def _attend(self, attended: _Attended, first: TurnEvent) -> None:
        try:
            await attended.run_to_its_end(first)
        except Exception as error:
            log_unexpected(error, attended.request.request_id)
            await attended.give_up(error)
        finally:
            attended.stream.close()
            attended.run.end()
            request = attended.request
            del self._live[request.tenant, request.response_id]
            self._edge.runs.leave(request.response_id, request.tenant)

    async def _take_back(self, request: TurnRequest, error: BaseException) -> None:
        """Leave no row that waits for ever. Raises nothing: the caller is to be told `error`."""
        try:
            await self._edge.archive.delete(request.response_id, request.tenant)
        except ResponseNotFound:
            pass
        except Exception as hindrance:
            _log.warning("the row of a run that did not begin was not deleted", error=type(hindrance).__name__)
            told = wire_error(error if isinstance(error, Exception) else TurnCancelled("The client went away."))
            fault = fault_of(told)
            await _end(self._edge, request, Broken(code=fault.code, message=fault.message))


@dataclass(slots=True)
class _Attended:
    """A running turn, the renderer of its events and where they go."""

    edge: Edge
    request: TurnRequest
    stream: TurnStream
    renderer: ResponsesStream
    run: LiveRun
    writer: RunWriter
    told_end: bool = False

    async def run_to_its_end(self, first: TurnEvent) -> None:
        async with self.writer.beside():
            last = await self._read(first)
        if isinstance(last, Failed):
            await self._failed(last)
        elif await self.writer.flush():
            self.stream.accept()

    async def give_up(self, error: Exception) -> None:
        """The server failed on this run: have its turn stop, and say so where nobody was told another end. Raises
        nothing."""
        self.stream.close()
        facts = ResponseFacts.from_echo(self.request.echo)
        response = render_response(facts, status="failed", fault=fault_of(wire_error(error)))
        if not self.told_end:
            end = ending(response, len(self.run.events))
            self.run.add(() if end is None else (end.data,))
        await _end(self.edge, self.request, broken_off(response))

    async def _read(self, event: TurnEvent) -> Finished | Failed:
        """Tell the turn's events as they come. Returns the last."""
        while True:
            match event:
                case Finished():
                    self.run.add(self.renderer.event(Finished(event.outcome.without_excerpts())))
                    self.told_end = True
                    return event
                case Failed():
                    self._tell_failed(event)
                    self.told_end = True
                    return event
                case Started():
                    self.writer.started()
                    self.run.add(self.renderer.event(event))
                case Loading():
                    pass
                case _:
                    self.run.add(self.renderer.event(event))
            self.writer.due()
            event = await anext(self.stream)

    def _tell_failed(self, failed: Failed) -> None:
        if is_bug(failed.error):
            log_unexpected(failed.error, self.request.request_id)
        if isinstance(failed.error, TurnCancelled):
            self.run.add(self.renderer.cancelled(failed.usage))
        else:
            self.run.add(self.renderer.failure(replace(wire_error(failed.error), spent=failed.usage)))

    async def _failed(self, failed: Failed) -> None:
        # Whoever follows on another server looks for the last events until the row has ended.
        await self.writer.flush()
        told = self.renderer.ended
        assert told is not None
        cancelled = isinstance(failed.error, TurnCancelled)
        await _end(self.edge, self.request, broken_off(told), cancelled=cancelled)


async def _end(edge: Edge, request: TurnRequest, broken: Broken, *, cancelled: bool = False) -> None:
    """End a run without an outcome. What the store does not take now, the archive tries again. Raises nothing."""
    error = jsonio.encode(broken)
    try:
        await edge.runs.end(request.response_id, request.tenant, cancelled=cancelled, error=error)
    except Overloaded as unavailable:
        _log.warning("the end of a run was not stored; it is tried again", error=unavailable.message)
    except Exception as bug:
        log_unexpected(bug, request.request_id)


def _warnings(event: TurnEvent) -> tuple[str, ...]:
    return event.warnings if isinstance(event, Validated) else ()
