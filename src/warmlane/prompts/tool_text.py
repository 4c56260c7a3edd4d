"""Puts tools, calls and results where a template can show them, as text where it has no place for them.

What is written depends on the tools and on each message alone, so a longer conversation's prompt still extends the
shorter one's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import structs

from warmlane.conversation.messages import Message, Reasoning, Role, Text, ToolCall, ToolResult
from warmlane.conversation.tools import Tool, ToolChoice
from warmlane.prompts.formats.base import OutputFormat
from warmlane.prompts.skills import Skills

_SYSTEM_ROLES = (Role.SYSTEM, Role.DEVELOPER)


def fitted(
    messages: Sequence[Message], tools: Sequence[Tool], skills: Skills, form: OutputFormat
) -> tuple[Message, ...]:
    """The dialogue in what the template shows; unchanged where it shows all."""
    shown, names = tuple(messages), call_names(messages)
    if tools and not skills.tools:
        shown = _with_instructions(shown, form.instructions(tools, ToolChoice()))
    if skills.calls is not None and not skills.several_calls:
        shown = tuple(_one_call_each(shown))
    if skills.calls is None:
        shown = tuple(_spelled_calls(shown, form))
    elif skills.text_before_calls and not skills.text_with_calls:
        shown = tuple(_text_first(shown))
    if not skills.results:
        shown = tuple(_spelled_results(shown, names, form))
    return shown


def call_names(messages: Sequence[Message]) -> dict[str, str]:
    """The tool each call id stands for; of several calls under one id, the last."""
    return {call.call_id: call.name for message in messages for call in message.tool_calls}


def result_text(result: ToolResult) -> str:
    """What the model reads of a result. Templates have no mark for a failed one, so its text says so."""
    if result.is_error and not result.text.lower().lstrip().startswith("error"):
        return f"Error: {result.text}"
    return result.text


def _with_instructions(messages: tuple[Message, ...], text: str) -> tuple[Message, ...]:
    if messages and messages[0].role in _SYSTEM_ROLES:
        first = messages[0]
        return (structs.replace(first, parts=(*first.parts, Text("\n\n" + text))), *messages[1:])
    return (Message(Role.SYSTEM, (Text(text),)), *messages)


def _one_call_each(messages: Sequence[Message]) -> Iterator[Message]:
    """Calls that were made together, one after the other, each with its result behind it."""
    results = {part.call_id: part for m in messages for part in m.parts if isinstance(part, ToolResult)}
    moved: set[str] = set()
    for message in messages:
        if len(message.tool_calls) < 2:
            parts = tuple(p for p in message.parts if not (isinstance(p, ToolResult) and p.call_id in moved))
            if parts or not message.parts:
                yield message if parts == message.parts else structs.replace(message, parts=parts)
            continue
        spoken = tuple(p for p in message.parts if not isinstance(p, ToolCall))
        for call in message.tool_calls:
            yield Message(message.role, (*spoken, call))
            spoken = ()
            if call.call_id in results:
                moved.add(call.call_id)
                yield Message(Role.TOOL, (results[call.call_id],))


def _spelled_calls(messages: Sequence[Message], form: OutputFormat) -> Iterator[Message]:
    for message in messages:
        if not message.tool_calls:
            yield message
            continue
        between = "\n" if message.text and not message.text.endswith("\n") else ""
        spelled = Text(message.text + between + form.written_calls(message.tool_calls))
        reasoning = tuple(p for p in message.parts if isinstance(p, Reasoning))
        yield structs.replace(message, parts=(*reasoning, spelled))


def _text_first(messages: Sequence[Message]) -> Iterator[Message]:
    """What was said beside calls, as a message of its own before them."""
    for message in messages:
        if message.tool_calls and message.text:
            yield Message(message.role, tuple(p for p in message.parts if not isinstance(p, ToolCall)))
            yield structs.replace(message, parts=message.tool_calls)
        else:
            yield message


def _spelled_results(messages: Sequence[Message], names: Mapping[str, str], form: OutputFormat) -> Iterator[Message]:
    """Results as messages of the user; those that stand together as one."""
    pending: list[str] = []
    for message in messages:
        results = [p for p in message.parts if isinstance(p, ToolResult)]
        if results and message.role is Role.TOOL:
            pending += [form.written_result(names.get(r.call_id, ""), result_text(r)) for r in results]
            continue
        if pending:
            yield Message(Role.USER, (Text("\n".join(pending)),))
            pending = []
        yield message
    if pending:
        yield Message(Role.USER, (Text("\n".join(pending)),))
