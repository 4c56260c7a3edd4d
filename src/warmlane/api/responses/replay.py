"""A background response that this process does not attend, as it comes to be in the store.

Whoever follows it is told the end once the row has one, also where the store was away when the last events came.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

import msgspec
from msgspec import structs

from warmlane.api import jsonio
from warmlane.api.responses import event_wire, wire
from warmlane.api.responses.broken import Broken
from warmlane.api.responses.render import ResponseFacts, render_outcome, render_response
from warmlane.api.settings import Edge
from warmlane.clock import sleep_until
from warmlane.turns.archive import Archived
from warmlane.turns.runs import LoggedEvent

LOOK_S: Final = 0.5
"""How often the store is asked for news of a run of another server."""

LAG_S: Final = 3.0
"""How long the last events of a run that ended well may take to be logged, once its row has ended."""

ELSEWHERE_S: Final = 10.0
"""How long a cancellation waits for the server that attends the run."""

_ENDINGS = frozenset({"response.completed", "response.incomplete", "response.failed"})


class _Typed(msgspec.Struct):
    type: str


def event_type(data: bytes) -> str:
    """The type of a logged event."""
    return msgspec.json.decode(data, type=_Typed).type


def archived_response(archived: Archived) -> wire.Response:
    """The response object of a stored row, whatever state it is in."""
    facts = ResponseFacts.from_echo(archived.echo)
    if archived.outcome is not None:
        return render_outcome(facts, archived.outcome, completed_at=int(archived.completed_at))
    response = render_response(facts, status=msgspec.convert(archived.status, wire.ResponseStatus))
    if archived.error is None:
        return response
    broken = msgspec.json.decode(archived.error, type=Broken)
    return structs.replace(response, error=broken.fault, output=broken.output, usage=broken.usage)


def ending(response: wire.Response, sequence: int) -> LoggedEvent | None:
    """The event that tells the end of `response`; None of one that has not ended."""
    event: event_wire.Event
    match response.status:
        case "completed":
            event = event_wire.Completed(sequence_number=sequence, response=response)
        case "incomplete":
            event = event_wire.Incomplete(sequence_number=sequence, response=response)
        case "failed" | "cancelled":
            event = event_wire.FailedEvent(sequence_number=sequence, response=response)
        case "queued" | "in_progress":
            return None
    return LoggedEvent(sequence, jsonio.encode(event))


async def replay(edge: Edge, response_id: str, tenant: str, after: int) -> AsyncIterator[LoggedEvent]:
    """The events behind number `after`, those to be logged included, and the end where the log lacks it. Raises
    `ResponseNotFound` and `StoreUnavailable`."""
    asked, first_look, ended_s = after, True, None
    while True:
        async for event in _logged(edge, response_id, tenant, after):
            yield event
            after = event.sequence
            if event_type(event.data) in _ENDINGS:
                return
        if first_look and after == asked and await _ended_by(edge, response_id, tenant, after):
            return
        first_look = False
        archived = await edge.archive.retrieve(response_id, tenant)
        end = ending(archived_response(archived), after + 1)
        if end is not None:
            ended_s = edge.clock.now() if ended_s is None else ended_s
            lags = archived.outcome is not None and edge.unix_s() <= archived.completed_at + LAG_S
            if not lags or edge.clock.now() >= ended_s + LAG_S:
                yield end
                return
        await sleep_until(edge.clock, edge.clock.now() + LOOK_S)


async def ended_elsewhere(edge: Edge, response_id: str, tenant: str) -> None:
    """Wait until a run of another server has ended, at most `ELSEWHERE_S`. Raises like `replay`."""
    until_s = edge.clock.now() + ELSEWHERE_S
    while edge.clock.now() < until_s:
        archived = await edge.archive.retrieve(response_id, tenant)
        if archived.status not in ("queued", "in_progress"):
            return
        await sleep_until(edge.clock, edge.clock.now() + LOOK_S)


async def _ended_by(edge: Edge, response_id: str, tenant: str, sequence: int) -> bool:
    """Whether the log has the end, and nothing behind this number."""
    last: LoggedEvent | None = None
    async for event in _logged(edge, response_id, tenant, -1):
        last = event
    return last is not None and last.sequence <= sequence and event_type(last.data) in _ENDINGS


async def _logged(edge: Edge, response_id: str, tenant: str, after: int) -> AsyncIterator[LoggedEvent]:
    while page := await edge.runs.events(response_id, tenant, after=after):
        for event in page:
            yield event
        after = page[-1].sequence
