"""What a family of models writes, as an interface: a parser of its raw output, and the grammar of what it may write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from warmlane.conversation.events import ReasoningDelta, TextDelta, ToolCallDelta, ToolCallStarted
from warmlane.conversation.messages import Part, ToolCall
from warmlane.conversation.tools import TextFormat, Tool, ToolChoice

ParsedEvent = TextDelta | ReasoningDelta | ToolCallStarted | ToolCallDelta


class OutputParser(Protocol):
    """Reads one reply as it comes. The events, joined, do not depend on where the text was cut.

    Never raises for what a model may write: what is no well-formed call is text.
    """

    def feed(self, text: str) -> list[ParsedEvent]:
        """What is certain once `text` has followed all that came before."""
        ...

    def finish(self) -> list[ParsedEvent]:
        """The reply is over: what was held back. Nothing may be fed afterwards."""
        ...

    @property
    def parts(self) -> tuple[Part, ...]:
        """All that was read, in order; adjacent text is one part. Complete after `finish`."""
        ...

    @property
    def truncated_call(self) -> bool:
        """Whether the reply ended inside a call that had begun to be told."""
        ...


class OutputFormat(Protocol):
    """One family's way of writing. Stateless; shared by all turns of a model."""

    @property
    def name(self) -> str: ...

    @property
    def special_text(self) -> bool:
        """Whether its markup is made of control tokens, so that the engine has to spell those out."""
        ...

    def parser(self, tools: Sequence[Tool], *, opening: str = "") -> OutputParser:
        """A parser of one reply. `opening` is what the prompt ends with after the last message: a reply whose
        reasoning was opened there begins inside it. `tools` tell how argument values are typed."""
        ...

    def grammar(
        self, tools: Sequence[Tool], choice: ToolChoice, text_format: TextFormat | None, *, opening: str = ""
    ) -> str | None:
        """What a reply may be, as a llguidance grammar in Lark syntax; None if it may be anything.

        Raises `errors.InvalidRequest` for a choice this family cannot be held to.
        """
        ...

    def instructions(self, tools: Sequence[Tool], choice: ToolChoice) -> str:
        """For the system prompt of a template that does not show tools: what they are and how to call them. It depends
        on `choice` as little as it can, so that a conversation's prompts begin alike."""
        ...

    def written_calls(self, calls: Sequence[ToolCall]) -> str:
        """Calls as this family writes them behind a reply's text, for a template that does not show any."""
        ...

    def written_result(self, name: str, text: str) -> str:
        """The result of a call of `name`, for a user's message under a template without results."""
        ...
