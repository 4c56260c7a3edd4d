"""What a model says in one turn, read as it comes: into text, reasoning and calls where its format tells them apart.

A token counts as reasoning if reasoning is what was told next after it was sampled: the markup that opens reasoning
counts with it, the markup that ends it with what follows.
"""

from __future__ import annotations

from collections.abc import Sequence

from warmlane.conversation.events import ReasoningDelta, TextDelta, ToolCallDelta, ToolCallStarted
from warmlane.conversation.messages import Part, Reasoning, Text, ToolCall
from warmlane.conversation.tools import TokenLogprob
from warmlane.engine.protocol import Chunk
from warmlane.engine.text import TextAssembler
from warmlane.prompts.formats.base import EventParser, ParsedEvent
from warmlane.turns.logprob_trail import LogprobTrail


class ReplyReader:
    """Turns the engine's chunks into events, and remembers what they told.

    Without a `parser` all is text, as the engine said it. `stop` are stop strings to look for in the text alone, where
    the engine, which sees the markup as well, must not; once `stopped` is set nothing more may be fed.
    """

    def __init__(self, parser: EventParser | None, *, stop: Sequence[str] = (), logprobs: bool = False) -> None:
        self._parser = parser
        self._stops = TextAssembler(stop) if stop else None
        self._kept = _Kept()
        self._trail = LogprobTrail() if logprobs and parser is not None else None
        self._told = _Told()
        self._untold_tokens = 0
        self._logprobs: list[TokenLogprob] = []
        self.n_tokens = 0
        self.reasoning_tokens = 0

    @property
    def stopped(self) -> str | None:
        """The stop string that ended the text."""
        return self._stops.matched if self._stops is not None else None

    @property
    def parts(self) -> tuple[Part, ...]:
        """All that was told so far."""
        return self._told.parts()

    @property
    def logprobs(self) -> tuple[TokenLogprob, ...]:
        return tuple(self._logprobs)

    @property
    def whole_calls(self) -> int:
        """How many calls were told and are whole. Complete after `finish`."""
        broken = self._parser.incomplete_calls if self._parser is not None else frozenset()
        return self._told.n_calls - len(broken)

    def kept(self) -> tuple[tuple[int, ...], str]:
        """Of a reply that a stop string ended: the leading tokens with no part of that string, and their text."""
        return self._kept.until(self._kept.told_chars)

    def feed(self, chunk: Chunk) -> list[ParsedEvent]:
        """What is certain once this chunk has come."""
        self.n_tokens += chunk.n_tokens
        if self._parser is None:
            return self._tell([TextDelta(chunk.text, chunk.logprobs)] if chunk.text else [])
        self._untold_tokens += chunk.n_tokens
        if self._trail is not None:
            self._trail.add(chunk.logprobs)
        events = self._tell(self._parser.feed(chunk.text))
        if self._stops is not None:
            self._kept.add(chunk)
        return events

    def finish(self) -> list[ParsedEvent]:
        """The reply is over: what was held back."""
        events = self._tell(self._parser.finish()) if self._parser is not None else []
        if self._stops is None or self._stops.matched is not None:
            return events
        return [*events, *self._record(self._text(self._stops.finish()))]

    def _tell(self, parsed: Sequence[ParsedEvent]) -> list[ParsedEvent]:
        if parsed:
            if isinstance(parsed[0], ReasoningDelta):
                self.reasoning_tokens += self._untold_tokens
            self._untold_tokens = 0
        events: list[ParsedEvent] = []
        for event in parsed:
            events += self._record(self._visible(event))
            if self.stopped is not None:
                break
        return events

    def _visible(self, event: ParsedEvent) -> list[ParsedEvent]:
        """The event as it may be told: text up to a stop string, and no further while it may be the start of one."""
        if isinstance(event, TextDelta):
            if self._stops is None:
                return self._text(event.text, event.logprobs)
            self._kept.text_chars += len(event.text)
            return self._text(self._stops.push(event.text.encode("utf-8", "replace")))
        held = self._text(self._stops.finish()) if self._stops is not None else []
        if self._trail is not None and isinstance(event, ReasoningDelta):
            self._trail.skip(event.text)
        return [*held, event]

    def _text(self, text: str, logprobs: tuple[TokenLogprob, ...] = ()) -> list[ParsedEvent]:
        if not text:
            return []
        return [TextDelta(text, self._trail.take(text) if self._trail is not None else logprobs)]

    def _record(self, events: list[ParsedEvent]) -> list[ParsedEvent]:
        for event in events:
            self._told.add(event)
            if isinstance(event, TextDelta):
                self._kept.told_chars += len(event.text)
                self._logprobs += event.logprobs
        return events


class _Kept:
    """Which tokens a reply that may be cut consists of. `text_chars` is how much of its text was read, `told_chars` how
    much of that was told."""

    def __init__(self) -> None:
        self._ids: list[int] = []
        self._text: list[str] = []
        self._bounds: list[tuple[int, int, int]] = [(0, 0, 0)]
        self.text_chars = 0
        self.told_chars = 0

    def add(self, chunk: Chunk) -> None:
        self._text.append(chunk.text)
        if chunk.token_ids:
            self._ids += chunk.token_ids
            self._bounds.append((len(self._ids), len(self._text), self.text_chars))

    def until(self, text_chars: int) -> tuple[tuple[int, ...], str]:
        """The tokens up to the last chunk by whose end no more than so much text was read."""
        n_ids, n_pieces, _ = max(bound for bound in self._bounds if bound[2] <= text_chars)
        return tuple(self._ids[:n_ids]), "".join(self._text[:n_pieces])


class _Told:
    """Events joined into parts."""

    def __init__(self) -> None:
        self._done: list[Part | _OpenCall] = []
        self._kind: type[Text] | type[Reasoning] | None = None
        self._pieces: list[str] = []
        self.n_calls = 0

    def add(self, event: ParsedEvent) -> None:
        match event:
            case TextDelta():
                self._speak(Text, event.text)
            case ReasoningDelta():
                self._speak(Reasoning, event.text)
            case ToolCallStarted():
                self._close()
                self._done.append(_OpenCall(event))
                self.n_calls += 1
            case ToolCallDelta():
                call = next(p for p in reversed(self._done) if isinstance(p, _OpenCall) and p.index == event.index)
                call.pieces.append(event.arguments)

    def parts(self) -> tuple[Part, ...]:
        self._close()
        return tuple(part.call() if isinstance(part, _OpenCall) else part for part in self._done)

    def _speak(self, kind: type[Text] | type[Reasoning], text: str) -> None:
        if kind is not self._kind:
            self._close()
        self._kind = kind
        self._pieces.append(text)

    def _close(self) -> None:
        if self._kind is not None:
            self._done.append(self._kind("".join(self._pieces)))
        self._kind, self._pieces = None, []


class _OpenCall:
    def __init__(self, started: ToolCallStarted) -> None:
        self._started = started
        self.index = started.index
        self.pieces: list[str] = []

    def call(self) -> ToolCall:
        return ToolCall(self._started.call_id, self._started.name, "".join(self.pieces))
