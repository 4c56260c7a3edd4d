"""A turn's events as a Responses stream.

    created · in_progress (· in_progress …) · per item: added, parts and deltas, done · completed | incomplete | failed

One item is open at a time; `sequence_number` counts every event from 0; the final `output` is made of the very items
that were closed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from warmlane.api import sse
from warmlane.api.errors import WireError, openai_fault
from warmlane.api.responses import wire
from warmlane.api.responses.render import ResponseFacts, item_id, render_outcome, render_response
from warmlane.conversation.events import (
    Finished,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    TurnEvent,
)
from warmlane.conversation.turn import Outcome, StopReason
from warmlane.errors import ContextOverflow

_OVERFLOW_CODE = "context_length_exceeded"
"""Not among the codes of the vendor's type, and the only one by which agents know to compact."""


@dataclass(slots=True)
class _OpenItem:
    """The item being written. `call` is the id and name of a function call."""

    kind: type[wire.OutputItem]
    id: str
    index: int
    call: tuple[str, str] = ("", "")
    pieces: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class ResponsesStream:
    """Renders one turn. `unix_s` gives the second it completed."""

    def __init__(self, facts: ResponseFacts, *, unix_s: Callable[[], int]) -> None:
        self._facts = facts
        self._unix_s = unix_s
        self._sequence = -1
        self._done: list[wire.OutputItem] = []
        self._open: _OpenItem | None = None
        self._skeleton = render_response(facts, status="in_progress")

    def opening(self) -> Iterator[bytes]:
        yield self._frame(wire.Created(sequence_number=self._next(), response=self._skeleton))
        yield from self.keep_alive()

    def keep_alive(self) -> Iterator[bytes]:
        """The in_progress event again: some clients' idle timers do not hear comments."""
        yield self._frame(wire.InProgress(sequence_number=self._next(), response=self._skeleton))

    def tells_in_stream(self, error: Exception) -> bool:
        """An overflow is told in the stream: agents compact on a failed response, and give up on a 400."""
        return isinstance(error, ContextOverflow)

    def event(self, event: TurnEvent) -> Iterator[bytes]:
        match event:
            case TextDelta():
                yield from self._text(event.text)
            case ReasoningDelta():
                yield from self._reasoning(event.text)
            case ToolCallStarted():
                yield from self._start_call(event)
            case ToolCallDelta():
                yield from self._arguments(event.arguments)
            case Finished():
                yield from self._finish(event.outcome)

    def failure(self, error: WireError) -> Iterator[bytes]:
        yield from self._close("incomplete")
        yield self._frame(
            wire.ErrorEvent(
                sequence_number=self._next(),
                code=error.code,
                message=error.message,
                param=error.param,
                error=openai_fault(error),
            )
        )
        code = _OVERFLOW_CODE if error.code == _OVERFLOW_CODE else "server_error"
        fault = wire.ResponseFault(code=code, message=error.message)
        response = render_response(self._facts, status="failed", output=tuple(self._done), fault=fault)
        yield self._frame(wire.FailedEvent(sequence_number=self._next(), response=response))

    def _finish(self, outcome: Outcome) -> Iterator[bytes]:
        if self._open is None and not self._done:
            yield from self._open_item(wire.MessageItem)
        cut = outcome.stop_reason is StopReason.LENGTH
        yield from self._close("incomplete" if cut else "completed")
        response = render_outcome(self._facts, outcome, completed_at=self._unix_s(), output=tuple(self._done))
        if cut:
            yield self._frame(wire.Incomplete(sequence_number=self._next(), response=response))
        else:
            yield self._frame(wire.Completed(sequence_number=self._next(), response=response))

    def _text(self, delta: str) -> Iterator[bytes]:
        if not delta:
            return
        yield from self._ensure(wire.MessageItem)
        item = self._append(delta)
        yield self._frame(
            wire.OutputTextDelta(sequence_number=self._next(), item_id=item.id, output_index=item.index, delta=delta)
        )

    def _reasoning(self, delta: str) -> Iterator[bytes]:
        if not delta:
            return
        yield from self._ensure(wire.ReasoningItem)
        item = self._append(delta)
        yield self._frame(
            wire.SummaryTextDelta(sequence_number=self._next(), item_id=item.id, output_index=item.index, delta=delta)
        )

    def _start_call(self, event: ToolCallStarted) -> Iterator[bytes]:
        yield from self._close("completed")
        yield from self._open_item(wire.FunctionCallItem, call=(event.call_id, event.name))

    def _arguments(self, delta: str) -> Iterator[bytes]:
        if not delta:
            return
        item = self._append(delta)
        yield self._frame(
            wire.ArgumentsDelta(sequence_number=self._next(), item_id=item.id, output_index=item.index, delta=delta)
        )

    def _ensure(self, kind: type[wire.OutputItem]) -> Iterator[bytes]:
        if self._open is None or self._open.kind is not kind:
            yield from self._close("completed")
            yield from self._open_item(kind)

    def _append(self, delta: str) -> _OpenItem:
        if self._open is None:
            raise RuntimeError("a delta came before its item")
        self._open.pieces.append(delta)
        return self._open

    def _open_item(self, kind: type[wire.OutputItem], call: tuple[str, str] = ("", "")) -> Iterator[bytes]:
        index = len(self._done)
        item = self._open = _OpenItem(kind, item_id(self._facts.id, kind, index), index, call)
        added = _item(item, "in_progress", empty=True)
        yield self._frame(wire.ItemAdded(sequence_number=self._next(), output_index=index, item=added))
        if kind is wire.MessageItem:
            yield self._frame(
                wire.ContentPartAdded(
                    sequence_number=self._next(), item_id=item.id, output_index=index, part=wire.OutputText("")
                )
            )
        elif kind is wire.ReasoningItem:
            yield self._frame(
                wire.SummaryPartAdded(
                    sequence_number=self._next(), item_id=item.id, output_index=index, part=wire.SummaryText("")
                )
            )

    def _close(self, status: wire.ItemStatus) -> Iterator[bytes]:
        item, self._open = self._open, None
        if item is None:
            return
        yield from self._close_parts(item)
        final = _item(item, status)
        self._done.append(final)
        yield self._frame(wire.ItemDone(sequence_number=self._next(), output_index=item.index, item=final))

    def _close_parts(self, item: _OpenItem) -> Iterator[bytes]:
        where, index, text = item.id, item.index, item.text
        if item.kind is wire.FunctionCallItem:
            done: wire.Event = wire.ArgumentsDone(
                sequence_number=self._next(), item_id=where, output_index=index, name=item.call[1], arguments=text
            )
            yield self._frame(done)
            return
        part: wire.Event
        if item.kind is wire.ReasoningItem:
            done = wire.SummaryTextDone(sequence_number=self._next(), item_id=where, output_index=index, text=text)
            part = wire.SummaryPartDone(
                sequence_number=self._next(), item_id=where, output_index=index, part=wire.SummaryText(text)
            )
        else:
            done = wire.OutputTextDone(sequence_number=self._next(), item_id=where, output_index=index, text=text)
            part = wire.ContentPartDone(
                sequence_number=self._next(), item_id=where, output_index=index, part=wire.OutputText(text)
            )
        yield self._frame(done)
        yield self._frame(part)

    def _next(self) -> int:
        self._sequence += 1
        return self._sequence

    @staticmethod
    def _frame(event: wire.Event) -> bytes:
        return sse.named(str(type(event).__struct_config__.tag), event)


def _item(item: _OpenItem, status: wire.ItemStatus, *, empty: bool = False) -> wire.OutputItem:
    if item.kind is wire.FunctionCallItem:
        return wire.FunctionCallItem(item.id, status, *item.call, item.text)
    if item.kind is wire.ReasoningItem:
        return wire.ReasoningItem(item.id, status, () if empty else (wire.SummaryText(item.text),))
    return wire.MessageItem(item.id, status, () if empty else (wire.OutputText(item.text),))
