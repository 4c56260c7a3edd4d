"""Reads a reply that is made of messages with headers (`describe.Messages`): OpenAI's Harmony."""

from __future__ import annotations

import re
from collections.abc import Callable

from warmlane.prompts.formats.describe import Messages
from warmlane.prompts.formats.json_text import json_value
from warmlane.prompts.formats.source import Ended, Malformed, Mark, Marks, Reading, Source
from warmlane.prompts.formats.teller import Teller
from warmlane.prompts.formats.values import ToolTypes

_CONTROL = re.compile(r"<\|[a-z_]+\|>")


class MessagesReader:
    """`reading()` reads one reply; it ends with it. The prompt already opened the first header."""

    def __init__(
        self, layout: Messages, *, source: Source, teller: Teller, types: ToolTypes, calls: bool, inside: bool
    ) -> None:
        self._layout = layout
        self._source = source
        self._teller = teller
        self._types = types
        self._calls = calls
        self._inside = inside
        # Markup inside a message is text unless another message, or nothing, follows it.
        opening = layout.start + layout.role
        self._ends = Marks(
            [
                *(Mark(end, then=(layout.start,), at_end=True) for end in layout.ends),
                Mark(opening, then=layout.header_parts, keep=len(opening)),
            ]
        )
        self.noise: list[str] = []
        self.truncated = False

    def reading(self) -> Reading[None]:
        try:
            if self._inside:
                yield from self._source.scan(self._ends, self._teller.reasoning)
            while True:
                yield from self._message()
        except Ended:
            pass

    def _message(self) -> Reading[None]:
        layout, source = self._layout, self._source
        yield from source.choice((layout.start,))
        try:
            header, end = yield from source.head((layout.body, layout.start, *layout.ends), viable=layout.viable)
        except Malformed:
            yield from source.scan(self._ends, self._teller.text)
            return
        except Ended:
            self._cut_header(source.rest())
            raise
        if end != layout.body:
            self._teller.text(_CONTROL.sub("", header.removeprefix(layout.role)))
            return
        yield from self._body(header)

    def _cut_header(self, header: str) -> None:
        """The reply ended inside a header. What is more than one is a message whose header was never closed."""
        if self._calls and self._recipient(header):
            self.truncated = True
            return
        rest = self._layout.header.sub("", header, count=1)
        if rest.strip():
            self._teller.text(rest)

    def _recipient(self, header: str) -> str | None:
        found = self._layout.recipient.search(header)
        return found[1] if found and found[1] not in self._layout.nobody else None

    def _body(self, header: str) -> Reading[None]:
        layout = self._layout
        recipient = self._recipient(header)
        if recipient is not None and self._calls:
            name = recipient.removeprefix(layout.recipient_prefix)
            if name != recipient or self._types.knows(name):
                yield from self._call(name)
            else:
                yield from self._source.scan(self._ends, self.noise.append)
            return
        channels: list[str] = layout.channel.findall(header)
        thinks = bool(channels) and channels[-1] in layout.thoughts
        say: Callable[[str], None] = self._teller.reasoning if thinks else self._teller.text
        yield from self._source.scan(self._ends, say)

    def _call(self, name: str) -> Reading[None]:
        source, teller = self._source, self._teller
        source.record()
        try:
            yield from source.spaces()
            if not name or (yield from source.peek()) != "{":
                raise Malformed
            teller.call(name, None)
            yield from json_value(source, teller.arguments)
            teller.whole()
            source.recorded()
        except Malformed:
            raw = source.recorded()
            if not teller.broken():
                teller.text(raw)
            yield from source.scan(self._ends, teller.text)
            return
        except Ended:
            teller.broken()
            self.truncated = True
            raise
        yield from source.scan(self._ends, self.noise.append)
