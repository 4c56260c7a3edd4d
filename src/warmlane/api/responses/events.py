"""A turn's events as a Responses stream.

    created · in_progress (· in_progress …) · per item: added, parts and deltas, done · completed | incomplete | failed

One item is open at a time; `sequence_number` counts every event from 0; the final `output` is made of the very items
that were closed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec
from msgspec import UNSET, UnsetType, structs

from warmlane.api import sse
from warmlane.api.errors import WireError, openai_fault, wire_error
from warmlane.api.responses import event_wire, wire
from warmlane.api.responses.broken import fault_of
from warmlane.api.responses.drafts import ItemDraft, Kind, Seal, item_id, wire_logprobs
from warmlane.api.responses.render import ResponseFacts, render_outcome, render_response
from warmlane.conversation.events import (
    Finished,
    ReasoningDelta,
    Started,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    TurnEvent,
    Validated,
)
from warmlane.conversation.tools import TokenLogprob
from warmlane.conversation.turn import Outcome, StopReason, Usage
from warmlane.errors import ContextOverflow, EngineFault

Frame = Callable[[str, msgspec.Struct], bytes]
"""An event by its type's name as the bytes of one write."""


class ResponsesStream:
    """Renders one turn. `unix_s` gives the second it completed; `seal` encrypts the reasoning's content; `summary`
    makes of the reply the one item that is told, once it is whole. `queued` is the response as it waits, of one in the
    background, `ended` as its last event told it."""

    def __init__(
        self,
        facts: ResponseFacts,
        *,
        unix_s: Callable[[], int],
        seal: Seal | None = None,
        frame: Frame = sse.named,
        summary: Callable[[Outcome], wire.CompactionItem] | None = None,
    ) -> None:
        self._facts = facts
        self._unix_s = unix_s
        self._seal = seal
        self._write = frame
        self._summary = summary
        self._sequence = -1
        self._done: list[wire.OutputItem] = []
        self._open: ItemDraft | None = None
        self._late_warnings: tuple[str, ...] | UnsetType = UNSET
        self._skeleton = render_response(facts, status="in_progress")
        self.queued = render_response(facts, status="queued") if facts.background else None
        self.ended: wire.Response | None = None

    def opening(self) -> Iterator[bytes]:
        first = self.queued or self._skeleton
        yield self._frame(event_wire.Created(sequence_number=self._next(), response=first))
        if self.queued is not None:
            yield self._frame(event_wire.Queued(sequence_number=self._next(), response=self.queued))
        else:
            yield from self.keep_alive()

    def keep_alive(self) -> Iterator[bytes]:
        """The in_progress event again: some clients' idle timers do not hear comments."""
        yield self._frame(event_wire.InProgress(sequence_number=self._next(), response=self._skeleton))

    def tells_in_stream(self, error: Exception) -> bool:
        """An overflow is told in the stream: agents compact on a failed response, and give up on a 400."""
        return isinstance(error, ContextOverflow)

    def event(self, event: TurnEvent) -> Iterator[bytes]:
        match event:
            case Validated():
                self._late_warnings = event.warnings or UNSET
            case Finished():
                yield from self._finish(event.outcome)
            case Started() if self.queued is not None:
                yield from self.keep_alive()
            case _ if self._summary is not None:
                return
            case TextDelta():
                yield from self._text(event.text, event.logprobs)
            case ReasoningDelta():
                yield from self._reasoning(event.text)
            case ToolCallStarted():
                yield from self._start_call(event)
            case ToolCallDelta():
                yield from self._arguments(event.arguments)

    def failure(self, error: WireError) -> Iterator[bytes]:
        yield from self._close("incomplete")
        yield self._frame(
            event_wire.ErrorEvent(
                sequence_number=self._next(),
                code=error.code,
                message=error.message,
                param=error.param,
                error=openai_fault(error),
            )
        )
        response = render_response(
            self._facts, status="failed", output=tuple(self._done), fault=fault_of(error), usage=error.spent
        )
        yield self._last(event_wire.FailedEvent, response)

    def cancelled(self, spent: Usage | None) -> Iterator[bytes]:
        """The end of a background response that was told to stop, and what it had cost by then."""
        yield from self._close("incomplete")
        response = render_response(self._facts, status="cancelled", output=tuple(self._done), usage=spent)
        yield self._last(event_wire.FailedEvent, response)

    def nothing(self) -> Iterator[bytes]:
        """A response that was only to be prepared for: it ends without a word and has cost nothing."""
        response = render_response(self._facts, status="completed", usage=Usage(), completed_at=self._unix_s())
        yield self._last(event_wire.Completed, response)

    def _finish(self, outcome: Outcome) -> Iterator[bytes]:
        if self._summary is not None:
            try:
                item = self._summary(outcome)
            except EngineFault as error:
                yield from self.failure(wire_error(error))
                return
            outcome = structs.replace(outcome, stop_reason=StopReason.STOP)
            yield from self._whole(item)
        elif self._open is None and not self._done:
            yield from self._open_item(Kind.MESSAGE)
        cut = outcome.stop_reason is StopReason.LENGTH
        yield from self._close("incomplete" if cut else "completed")
        response = render_outcome(self._facts, outcome, completed_at=self._unix_s(), output=tuple(self._done))
        if cut:
            yield self._last(event_wire.Incomplete, response)
        else:
            yield self._last(event_wire.Completed, response)

    def _whole(self, item: wire.OutputItem) -> Iterator[bytes]:
        index = len(self._done)
        self._done.append(item)
        yield self._frame(event_wire.ItemAdded(sequence_number=self._next(), output_index=index, item=item))
        yield self._frame(event_wire.ItemDone(sequence_number=self._next(), output_index=index, item=item))

    def _text(self, delta: str, logprobs: Sequence[TokenLogprob]) -> Iterator[bytes]:
        if not delta:
            return
        yield from self._ensure(Kind.MESSAGE)
        item = self._append(delta)
        told = wire_logprobs(logprobs)
        item.logprobs += told
        yield self._frame(
            event_wire.OutputTextDelta(
                sequence_number=self._next(),
                item_id=item.id,
                output_index=item.index,
                delta=delta,
                logprobs=tuple(told),
            )
        )

    def _reasoning(self, delta: str) -> Iterator[bytes]:
        if not delta:
            return
        yield from self._ensure(Kind.REASONING)
        item = self._append(delta)
        yield self._frame(
            event_wire.SummaryTextDelta(
                sequence_number=self._next(), item_id=item.id, output_index=item.index, delta=delta
            )
        )

    def _start_call(self, event: ToolCallStarted) -> Iterator[bytes]:
        yield from self._close("completed")
        yield from self._open_item(Kind.CALL, call=(event.call_id, event.name))

    def _arguments(self, delta: str) -> Iterator[bytes]:
        if not delta:
            return
        item = self._append(delta)
        yield self._frame(
            event_wire.ArgumentsDelta(
                sequence_number=self._next(), item_id=item.id, output_index=item.index, delta=delta
            )
        )

    def _ensure(self, kind: Kind) -> Iterator[bytes]:
        if self._open is None or self._open.kind is not kind:
            yield from self._close("completed")
            yield from self._open_item(kind)

    def _append(self, delta: str) -> ItemDraft:
        if self._open is None:
            raise RuntimeError("a delta came before its item")
        self._open.pieces.append(delta)
        return self._open

    def _open_item(self, kind: Kind, call: tuple[str, str] = ("", "")) -> Iterator[bytes]:
        index = len(self._done)
        item = ItemDraft(kind=kind, id=item_id(self._facts.id, kind, index), index=index, call=call)
        self._open = item
        yield self._frame(event_wire.ItemAdded(sequence_number=self._next(), output_index=index, item=item.opened()))
        if kind is Kind.MESSAGE:
            yield self._frame(
                event_wire.ContentPartAdded(
                    sequence_number=self._next(), item_id=item.id, output_index=index, part=wire.OutputText("")
                )
            )
        elif kind is Kind.REASONING:
            yield self._frame(
                event_wire.SummaryPartAdded(
                    sequence_number=self._next(), item_id=item.id, output_index=index, part=wire.SummaryText("")
                )
            )

    def _close(self, status: wire.ItemStatus) -> Iterator[bytes]:
        item, self._open = self._open, None
        if item is None:
            return
        yield from self._close_parts(item)
        final = item.done(status, self._seal)
        self._done.append(final)
        yield self._frame(event_wire.ItemDone(sequence_number=self._next(), output_index=item.index, item=final))

    def _close_parts(self, item: ItemDraft) -> Iterator[bytes]:
        where, index, text = item.id, item.index, item.text
        done: event_wire.Event
        part: event_wire.Event
        if item.kind is Kind.CALL:
            done = event_wire.ArgumentsDone(
                sequence_number=self._next(), item_id=where, output_index=index, name=item.call[1], arguments=text
            )
            yield self._frame(done)
            return
        if item.kind is Kind.REASONING:
            done = event_wire.SummaryTextDone(
                sequence_number=self._next(), item_id=where, output_index=index, text=text
            )
            part = event_wire.SummaryPartDone(
                sequence_number=self._next(), item_id=where, output_index=index, part=wire.SummaryText(text)
            )
        else:
            done = event_wire.OutputTextDone(
                sequence_number=self._next(),
                item_id=where,
                output_index=index,
                text=text,
                logprobs=item.part.logprobs,
            )
            part = event_wire.ContentPartDone(
                sequence_number=self._next(), item_id=where, output_index=index, part=item.part
            )
        yield self._frame(done)
        yield self._frame(part)

    def _last(self, kind: type[event_wire.Last], response: wire.Response) -> bytes:
        self.ended = response
        return self._frame(kind(sequence_number=self._next(), response=response, warnings=self._late_warnings))

    def _next(self) -> int:
        self._sequence += 1
        return self._sequence

    def _frame(self, event: event_wire.Event) -> bytes:
        return self._write(str(type(event).__struct_config__.tag), event)
