"""A reply that the client began: the model goes on with it, and only what it adds is told."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import structs

from warmlane.conversation.events import TextDelta
from warmlane.conversation.messages import Message, Sampled, Text
from warmlane.prompts.formats.base import EventParser, ParsedEvent


@dataclass(frozen=True, slots=True)
class Begun:
    """The beginning of a reply: what it `said`, and the `text` and tokens it has in the prompt, where markup that opens
    a reply's text may stand in front."""

    said: str
    text: str
    token_ids: tuple[int, ...]

    def whole(self, continuation: Message, tokenizer: str) -> Message:
        """The whole reply, as it will come back."""
        added = continuation.sampled or Sampled((), "", tokenizer)
        sampled = Sampled(self.token_ids + added.token_ids, self.text + added.text, tokenizer)
        return structs.replace(continuation, parts=(Text(self.said), *continuation.parts), sampled=sampled)


class ContinuingParser:
    """Has `parser` read the beginning, which its state depends on, and tells what comes behind it."""

    def __init__(self, parser: EventParser, begun: Begun) -> None:
        self._parser = parser
        told = "".join(event.text for event in parser.feed(begun.text) if isinstance(event, TextDelta))
        self._held = begun.text[begun.text.rfind(told) + len(told) :] if told else begun.text
        """What of the beginning may be told later: it looks like markup so far, or is white space before some."""

    def feed(self, text: str) -> list[ParsedEvent]:
        return self._behind(self._parser.feed(text))

    def finish(self) -> list[ParsedEvent]:
        return self._behind(self._parser.finish())

    @property
    def incomplete_calls(self) -> frozenset[int]:
        return self._parser.incomplete_calls

    def _behind(self, events: list[ParsedEvent]) -> list[ParsedEvent]:
        behind: list[ParsedEvent] = []
        for event in events:
            if self._held and isinstance(event, TextDelta):
                event = self._without_beginning(event)
            else:
                self._held = ""
            if not isinstance(event, TextDelta) or event.text:
                behind.append(event)
        return behind

    def _without_beginning(self, event: TextDelta) -> TextDelta:
        if self._held.startswith(event.text):
            self._held = self._held.removeprefix(event.text)
            return TextDelta("")
        held, self._held = self._held, ""
        return TextDelta(event.text.removeprefix(held))


def only_text(parser: EventParser, begun: Begun) -> bool:
    """Whether the beginning is read as text by a model's own format, and no thought is open before it."""
    return all(isinstance(event, TextDelta) for event in (*parser.feed(begun.text), *parser.finish()))
