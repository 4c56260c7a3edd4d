"""The one parser: a layout's reader, fed with pieces of text."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from warmlane.conversation.messages import Part
from warmlane.conversation.tools import Tool
from warmlane.prompts.formats.base import ParsedEvent
from warmlane.prompts.formats.describe import Layout, Reply
from warmlane.prompts.formats.harmony import MessagesReader
from warmlane.prompts.formats.reader import ReplyReader
from warmlane.prompts.formats.source import Source
from warmlane.prompts.formats.teller import Teller
from warmlane.prompts.formats.values import ToolTypes


class ReplyParser:
    """An `OutputParser` for any layout. `inside`: the prompt opened the reply's reasoning."""

    def __init__(
        self,
        layout: Layout,
        tools: Sequence[Tool],
        *,
        new_call_id: Callable[[], str],
        inside: bool = False,
        whole_calls: bool = False,
    ) -> None:
        self._source = Source()
        self._teller = Teller(new_call_id=new_call_id, whole_calls=whole_calls)
        types, calls = ToolTypes(tools), bool(tools)
        self._reader: ReplyReader | MessagesReader
        if isinstance(layout, Reply):
            self._reader = ReplyReader(
                layout, source=self._source, teller=self._teller, types=types, calls=calls, inside=inside
            )
        else:
            self._reader = MessagesReader(
                layout, source=self._source, teller=self._teller, types=types, calls=calls, inside=inside
            )
        self._reading = self._reader.reading()

    def feed(self, text: str) -> list[ParsedEvent]:
        self._source.feed(text)
        next(self._reading, None)
        return self._teller.drain()

    def finish(self) -> list[ParsedEvent]:
        self._source.end()
        for _ in self._reading:
            pass
        if self._teller.silent and not self._reader.truncated:
            self._teller.text("".join(self._reader.noise).strip())
        return self._teller.drain()

    @property
    def parts(self) -> tuple[Part, ...]:
        return self._teller.parts

    @property
    def incomplete_calls(self) -> frozenset[int]:
        return frozenset(self._teller.incomplete)

    @property
    def truncated_call(self) -> bool:
        return self._reader.truncated
