"""What a family of models writes, as an interface: a parser of its raw output, and the grammar of what it may write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from warmlane.conversation.events import Delta
from warmlane.conversation.messages import Part, ToolCall
from warmlane.conversation.tools import TextFormat, Tool, ToolChoice

ParsedEvent = Delta


class EventParser(Protocol):
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
    def incomplete_calls(self) -> frozenset[int]:
        """The indexes of calls that were told and never became whole: the reply ended inside, or went on with what
        cannot belong to the call, which is then told as text."""
        ...


class OutputParser(EventParser, Protocol):
    """An `EventParser` that keeps what it told."""

    @property
    def parts(self) -> tuple[Part, ...]:
        """All that was told in events, in order; adjacent text is one part. Complete after `finish`. Calls that broke
        off are among them, with the arguments told so far (`incomplete_calls`)."""
        ...

    @property
    def truncated_call(self) -> bool:
        """Whether the reply ended inside a call, told or about to be."""
        ...


@dataclass(frozen=True, slots=True)
class ThoughtMarks:
    """What reasoning stands between, at the start of a reply; and what a reply goes on with where it is to end."""

    opens: tuple[str, ...]
    closes: tuple[str, ...]
    ending: str


class OutputFormat(Protocol):
    """One family's way of writing. Stateless; shared by all turns of a model."""

    @property
    def name(self) -> str: ...

    @property
    def special_text(self) -> bool:
        """Whether its markup is made of control tokens, so that the engine has to spell those out."""
        ...

    def thought_marks(self, *, calls: bool) -> ThoughtMarks | None:
        """None for a family that does not think. `calls`: there are some to be made."""
        ...

    def opens_thought(self, opening: str) -> bool:
        """Whether a reply behind `opening` begins inside its reasoning."""
        ...

    @property
    def text_opening(self) -> str:
        """Markup that a reply's text begins with; "" in most families."""
        ...

    def parser(
        self,
        tools: Sequence[Tool],
        *,
        new_call_id: Callable[[], str],
        opening: str = "",
        whole_calls: bool = False,
    ) -> OutputParser:
        """A parser of one reply.

        `opening` is what the prompt ends with after the last message: a reply whose reasoning was opened there begins
        inside it. `tools` tell how argument values are typed; without any, calls are not looked for and all markup of
        calls is text. A call of a tool that is not among them is told like any other, for the agent to answer with an
        error, except where only a known name tells a call from text. `new_call_id` names the calls, unless the family
        writes an id and no call of this reply had it yet. With `whole_calls` a call is told once it is whole: one that
        is malformed becomes text, and one that the reply ended in is left out and `truncated_call`.
        """
        ...

    def grammar(
        self, tools: Sequence[Tool], choice: ToolChoice, text_format: TextFormat | None, *, opening: str = ""
    ) -> str | None:
        """What a reply may be, as a llguidance grammar in Lark syntax; None if it may be anything. Markup is written as
        text, also where it is made of control tokens.

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
