"""The grammar of a reply: what a family writes, held to a choice of tools and a form of text."""

from __future__ import annotations

from collections.abc import Sequence

from warmlane.conversation.tools import TextFormat, Tool, ToolChoice, ToolMode
from warmlane.errors import InvalidRequest
from warmlane.prompts.formats.argument_rules import argument_rule
from warmlane.prompts.formats.describe import Layout, Reply
from warmlane.prompts.formats.rules import Rules, either, literal, pattern, sequence
from warmlane.prompts.formats.source import WHITE
from warmlane.prompts.formats.writing import Writing
from warmlane.prompts.schema import NotASchema, enforceable

_GAP = r"/[ \t\r\n]{0,8}/"
"""White space around a thought, a call or a value that stands for itself: room for what templates write there, and an
end to a model that writes nothing else."""

_INDEX = "/[0-9]{1,5}/"


def reply_grammar(
    layout: Layout,
    writing: Writing,
    tools: Sequence[Tool],
    choice: ToolChoice,
    text_format: TextFormat | None,
    *,
    opening: str,
    inside: bool,
) -> str | None:
    """See `OutputFormat.grammar`. `inside`: the prompt opened the reply's thought."""
    offered = _callable(tools, choice)
    narrowed = len(offered) < len(tools) or not choice.parallel or any(tool.strict for tool in offered)
    if text_format is None and choice.mode is ToolMode.AUTO and not (tools and narrowed):
        return None
    if text_format is None and choice.mode is ToolMode.NONE and not tools:
        return None
    grammar = _ReplyGrammar(layout, writing, offered, parallel=choice.parallel, opening=opening)
    try:
        if choice.mode is ToolMode.REQUIRED:
            body = grammar.calls()
        elif text_format is not None:
            body = either([grammar.value(text_format), *([grammar.calls()] if offered else [])])
        else:
            body = grammar.text_and_calls()
    except NotASchema as error:
        raise InvalidRequest(f"A JSON Schema of the request is {error}.") from error
    return grammar.text(body, inside=inside)


def _callable(tools: Sequence[Tool], choice: ToolChoice) -> tuple[Tool, ...]:
    if choice.mode is ToolMode.NONE:
        return ()
    offered = tuple(tool for tool in tools if choice.allowed is None or tool.name in choice.allowed)
    if choice.mode is ToolMode.REQUIRED and not offered:
        raise InvalidRequest("A call is required, but none of the tools offered may be called.", param="tool_choice")
    return offered


class _ReplyGrammar:
    def __init__(
        self, layout: Layout, writing: Writing, tools: Sequence[Tool], *, parallel: bool, opening: str
    ) -> None:
        self._writing = writing
        self._tools = tools
        self._several = parallel and writing.between is not None
        self._in_text = bool(writing.text[0]) and opening.endswith(writing.text[0])
        self._rules = Rules()
        self._marked = bool(writing.text[0])
        self._openers = call_openers(layout)
        thinks = layout.thought if isinstance(layout, Reply) else None
        self._calls_end_thought = thinks is not None and thinks.calls_end_it

    def text(self, body: str, *, inside: bool) -> str:
        """The grammar of a reply that is `body`, after a thought if the family has them."""
        thought = self._writing.thought
        if thought is None or self._in_text:
            return self._rules.text(body)
        # Where a call would end the thought, it would be one that nothing here holds to its schema.
        inner = self._rules.without(self._openers if self._calls_end_thought and self._tools else [])
        rest = self._rules.until(thought[1].strip(WHITE), inner)
        if inside:
            return self._rules.text(f"{rest} {body}")
        opens = literal(thought[0].strip(WHITE))
        lead = "" if self._marked else f"{_GAP} "
        once = "*" if self._marked else "?"
        return self._rules.text(f"({lead}{opens} {rest}){once} {body}")

    def calls(self) -> str:
        """One call, or several, and nothing else."""
        before, after = self._writing.text
        if not self._marked:
            return self._rules.rule(sequence(_GAP, self._written(), self._last()))
        # Where text is always closed, it stands before the calls, and empty.
        silence = literal(after) if self._in_text else f"({literal(before + after)})?"
        return self._rules.rule(sequence(silence if after else "", self._written(), self._last()))

    def value(self, text_format: TextFormat) -> str:
        """The reply's text is one JSON value."""
        schema = None if text_format.schema is None else enforceable(text_format.schema).schema
        json = self._rules.json(schema or '{"type": "object"}')
        before, after = self._writing.text
        lead = literal("" if self._in_text else before) if self._marked else _GAP
        return self._rules.rule(sequence(lead, json, literal(after), self._last()))

    def text_and_calls(self) -> str:
        """Text, with calls among it where there are tools."""
        if self._marked:
            return self._marked_text()
        rules, thought = self._rules, self._writing.thought
        free = rules.without(self._openers)
        if thought is not None:
            # A reply that begins with a thought is not text, whatever the thought holds.
            free = rules.not_starting(r"[ \t\r\n]*" + pattern(thought[0].strip(WHITE)), within=free)
        if not self._tools:
            return free
        if self._writing.alone:
            return either([rules.not_starting(r"[ \t\r\n]*[\x5b\x7b]", within=free), self.calls()])
        trigger = self._trigger()
        lead = rules.until(trigger, free)
        call = rules.rule(f"{lead} {self._written(trigger)}")
        return rules.rule(f"{call}{'*' if self._several else '?'} {free}")

    def _marked_text(self) -> str:
        rules, writing = self._rules, self._writing
        before, after = writing.text
        free = rules.without([opener for opener in self._openers if opener not in (before, after)])
        said = rules.until(after, free) if after else free
        text = said if self._in_text else f"{literal(before)} {said}"
        if not self._tools:
            return rules.rule(sequence(text, self._last()))
        if writing.preamble is None:
            return rules.rule(sequence(text, f"({self._written()})?", self._last()))
        preamble = f"{literal(writing.preamble[0])} {rules.until(writing.preamble[1], free)}"
        return rules.rule(f"{text} | ({preamble})? {self._written()}")

    def _last(self) -> str:
        return f"({literal(self._writing.last)})?" if self._writing.last else ""

    def _trigger(self) -> str:
        """The markup that can only be the start of a call."""
        opening = self._writing.begin + self._writing.open
        return max((opener for opener in self._openers if opening.startswith(opener)), key=len)

    def _written(self, taken: str = "") -> str:
        """Calls as they are written, the first of them without what is `taken` of it already."""
        writing, rules = self._writing, self._rules
        names = either([self._named(tool) for tool in self._tools])
        close = literal(writing.close)
        first = literal((writing.begin + writing.open).removeprefix(taken))
        another = ""
        if self._several and (not taken or writing.begin):
            between = literal((writing.between or "") + writing.open)
            another = rules.rule(sequence(between, names, close)) + "*"
        return rules.rule(sequence(first, names, close, another, literal(writing.end)))

    def _named(self, tool: Tool) -> str:
        writing = self._writing
        before, _, after = (tool.name + writing.middle).partition("{index}")
        index = _INDEX if after else ""
        arguments = argument_rule(self._rules, writing, tool)
        return self._rules.rule(sequence(literal(before), index, literal(after), arguments))


def call_openers(layout: Layout) -> list[str]:
    """Markup that running text must not hold, lest it be read as a call."""
    if not isinstance(layout, Reply):
        return [layout.start, layout.body, *layout.ends, *(part for part in layout.header_parts if part[0] == "<")]
    marks = [call.opener for call in layout.calls] + [section.opener for section in layout.sections]
    return list(dict.fromkeys(mark.text for mark in marks if mark is not None))
