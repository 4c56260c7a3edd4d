"""What was read of a reply so far: as events for whoever streams it, and as parts for whoever keeps it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from warmlane.conversation.events import ReasoningDelta, TextDelta, ToolCallDelta, ToolCallStarted
from warmlane.conversation.messages import Part, Reasoning, Text, ToolCall
from warmlane.prompts.formats.base import ParsedEvent


@dataclass(slots=True)
class _Said:
    """A part in the making; `call` is None for text and reasoning."""

    reasoning: bool
    call: ToolCallStarted | None = None
    pieces: list[str] = field(default_factory=list)

    def part(self) -> Part:
        text = "".join(self.pieces)
        if self.call is not None:
            return ToolCall(self.call.call_id, self.call.name, text)
        return Reasoning(text) if self.reasoning else Text(text)


class Teller:
    """Collects. A call in the making is told as it comes, or held until it is whole (`whole_calls`)."""

    def __init__(self, *, new_call_id: Callable[[], str], whole_calls: bool) -> None:
        self._new_call_id = new_call_id
        self._whole_calls = whole_calls
        self._events: list[ParsedEvent] = []
        self._said: list[_Said] = []
        self.n_calls = 0
        self._ids: set[str] = set()
        self._held: list[ParsedEvent] = []
        self.in_call = False
        self.incomplete: set[int] = set()

    @property
    def silent(self) -> bool:
        """Whether nothing was told yet."""
        return not self._said

    @property
    def told(self) -> bool:
        """Whether a call is in the making that was told."""
        return self.in_call and not self._whole_calls

    @property
    def parts(self) -> tuple[Part, ...]:
        return tuple(said.part() for said in self._said)

    def drain(self) -> list[ParsedEvent]:
        """The events since the last time, neighbours of a kind joined."""
        runs: list[list[ParsedEvent]] = []
        for event in self._events:
            if runs and _continues(runs[-1][-1], event):
                runs[-1].append(event)
            else:
                runs.append([event])
        self._events.clear()
        return [_joined(run) for run in runs]

    def text(self, text: str) -> None:
        self._speak(text, reasoning=False)

    def reasoning(self, text: str) -> None:
        self._speak(text, reasoning=True)

    def call(self, name: str, call_id: str | None) -> None:
        """A call begins. `call_id` is the one the model wrote, if any."""
        if not call_id or call_id in self._ids:
            call_id = self._new_call_id()
        self._ids.add(call_id)
        self.in_call = True
        self._tell(ToolCallStarted(self.n_calls, call_id, name))

    def arguments(self, text: str) -> None:
        if text:
            self._tell(ToolCallDelta(self.n_calls, text))

    def whole(self) -> None:
        """The call is complete."""
        self._close_call()
        for event in self._held:
            self._say(event)
        self._held.clear()

    def broken(self) -> bool:
        """The call will never be whole. True if it was told already, and so stays."""
        if not self.in_call:
            return False
        told = self.told
        if told:
            self.incomplete.add(self.n_calls)
            self._close_call()
        else:
            self.in_call = False
            self._held.clear()
        return told

    def _close_call(self) -> None:
        self.in_call = False
        self.n_calls += 1

    def _tell(self, event: ParsedEvent) -> None:
        if self._whole_calls:
            self._held.append(event)
        else:
            self._say(event)

    def _speak(self, text: str, *, reasoning: bool) -> None:
        if text:
            self._say(ReasoningDelta(text) if reasoning else TextDelta(text))

    def _say(self, event: ParsedEvent) -> None:
        self._events.append(event)
        if isinstance(event, ToolCallStarted):
            self._said.append(_Said(reasoning=False, call=event))
            return
        last = self._said[-1] if self._said else None
        if isinstance(event, ToolCallDelta):
            assert last is not None
            last.pieces.append(event.arguments)
            return
        reasoning = isinstance(event, ReasoningDelta)
        if last is None or last.call is not None or last.reasoning != reasoning:
            last = _Said(reasoning=reasoning)
            self._said.append(last)
        last.pieces.append(event.text)


def _continues(before: ParsedEvent, event: ParsedEvent) -> bool:
    if isinstance(event, ToolCallDelta):
        return isinstance(before, ToolCallDelta) and before.index == event.index
    return type(before) is type(event) and not isinstance(event, ToolCallStarted)


def _joined(run: list[ParsedEvent]) -> ParsedEvent:
    first = run[0]
    if len(run) == 1 or isinstance(first, ToolCallStarted):
        return first
    if isinstance(first, ToolCallDelta):
        return ToolCallDelta(first.index, "".join(e.arguments for e in run if isinstance(e, ToolCallDelta)))
    text = "".join(e.text for e in run if isinstance(e, TextDelta | ReasoningDelta))
    return TextDelta(text) if isinstance(first, TextDelta) else ReasoningDelta(text)
