"""The events of a background response that this process does not attend, as the store has them.

Whoever reads them is told the end once the row has one, also where the store was away when the last events came.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from warmlane.api import jsonio
from warmlane.api.responses import event_wire, wire
from warmlane.api.responses.render import ResponseFacts, render_outcome, render_response
from warmlane.api.settings import Edge
from warmlane.turns.archive import Archived
from warmlane.turns.runs import LoggedEvent

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
    fault = None if archived.error is None else msgspec.json.decode(archived.error, type=wire.ResponseFault)
    return render_response(facts, status=msgspec.convert(archived.status, wire.ResponseStatus), fault=fault)


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
    """The logged events behind number `after`, and the end where the log lacks it. Raises `ResponseNotFound` and
    `StoreUnavailable`."""
    last: LoggedEvent | None = None
    async for event in _logged(edge, response_id, tenant, after):
        yield event
        last = event
    if last is None and after >= 0:
        # Nothing was new to the client, so whether the log has its end shows only before that.
        async for event in _logged(edge, response_id, tenant, -1):
            last = event
    if last is not None and event_type(last.data) in _ENDINGS:
        return
    at = after if last is None else max(after, last.sequence)
    end = ending(archived_response(await edge.archive.retrieve(response_id, tenant)), at + 1)
    if end is not None:
        yield end


async def _logged(edge: Edge, response_id: str, tenant: str, after: int) -> AsyncIterator[LoggedEvent]:
    while page := await edge.runs.events(response_id, tenant, after=after):
        for event in page:
            yield event
        after = page[-1].sequence
