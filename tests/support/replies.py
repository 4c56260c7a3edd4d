"""Replies of models for tests: fed in any pieces, and what came of it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from warmlane.conversation.events import ReasoningDelta, TextDelta, ToolCallDelta, ToolCallStarted
from warmlane.conversation.messages import Part, Reasoning, Text, ToolCall
from warmlane.conversation.tools import Tool
from warmlane.prompts.formats import OutputFormat, ParsedEvent

Call = tuple[str, str, str]
"""Call id, name, arguments."""


@dataclass(frozen=True)
class Told:
    """A reply as its parser told it: in events, put together as a client does, and in parts."""

    text: str
    reasoning: str
    calls: tuple[Call, ...]
    parts: tuple[Part, ...]
    incomplete: frozenset[int]
    truncated: bool

    @property
    def whole(self) -> tuple[Call, ...]:
        return tuple(call for index, call in enumerate(self.calls) if index not in self.incomplete)

    @property
    def named(self) -> list[tuple[str, object]]:
        """Name and decoded arguments of the whole calls."""
        return [(name, json.loads(arguments)) for _, name, arguments in self.whole]


def tool(name: str, properties: dict[str, object] | None = None, **more: object) -> Tool:
    schema = {"type": "object", "properties": properties or {}, **more}
    return Tool(name=name, parameters=json.dumps(schema))


def told(
    form: OutputFormat,
    pieces: Iterable[str],
    tools: Sequence[Tool] = (),
    *,
    opening: str = "",
    whole_calls: bool = False,
) -> Told:
    numbers = itertools.count()
    parser = form.parser(tools, new_call_id=lambda: f"new_{next(numbers)}", opening=opening, whole_calls=whole_calls)
    events: list[ParsedEvent] = []
    for piece in pieces:
        events += parser.feed(piece)
    events += parser.finish()
    calls: list[list[str]] = []
    for event in events:
        if isinstance(event, ToolCallStarted):
            assert event.index == len(calls)
            calls.append([event.call_id, event.name, ""])
        elif isinstance(event, ToolCallDelta):
            assert event.arguments
            calls[event.index][2] += event.arguments
        else:
            assert event.text
    reply = Told(
        text="".join(event.text for event in events if isinstance(event, TextDelta)),
        reasoning="".join(event.text for event in events if isinstance(event, ReasoningDelta)),
        calls=tuple((call_id, name, arguments) for call_id, name, arguments in calls),
        parts=parser.parts,
        incomplete=parser.incomplete_calls,
        truncated=parser.truncated_call,
    )
    _agrees(reply)
    return reply


def _agrees(reply: Told) -> None:
    """Events and parts tell the same."""
    parts = reply.parts
    assert "".join(part.text for part in parts if isinstance(part, Text)) == reply.text
    assert "".join(part.text for part in parts if isinstance(part, Reasoning)) == reply.reasoning
    calls = tuple((p.call_id, p.name, p.arguments) for p in parts if isinstance(p, ToolCall))
    assert calls == reply.calls
    assert all(type(a) is not type(b) or isinstance(a, ToolCall) for a, b in itertools.pairwise(parts))
    for index, (_, _, arguments) in enumerate(calls):
        assert index in reply.incomplete or isinstance(json.loads(arguments), dict)
