"""Guards every text a client can choose, tools and calls included, before a template sees it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence

from msgspec import structs

from warmlane.conversation.messages import Message, Part, Reasoning, Text, ToolCall, ToolResult
from warmlane.conversation.tools import Tool
from warmlane.prompts.template import TemplateRejected

MAX_DEPTH = 200
"""Deepest nesting of a tool's schema or a call's arguments."""

_TOO_DEEP = "JSON in a tool or in a call's arguments is nested too deeply."

Safe = Callable[[str], str]


def contents(messages: Sequence[Message], tools: Sequence[Tool]) -> Iterator[str]:
    """Every text a client chose. JSON is there as written and as read, since an escape such as `\\u003c` may spell part
    of a control token's text. Raises `TemplateRejected` for JSON too deep to walk."""
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolCall):
                yield from (part.call_id, part.name, part.arguments, _read_out(part.arguments))
            elif isinstance(part, ToolResult):
                yield from (part.call_id, part.text)
            else:
                yield part.text
    for tool in tools:
        yield from (tool.name, tool.description or "", tool.parameters, _read_out(tool.parameters))


def guarded_messages(messages: Sequence[Message], safe: Safe) -> tuple[Message, ...]:
    """The messages, each text of theirs made safe; what was sampled is left as it is."""
    return tuple(_message(message, safe) for message in messages)


def guarded_tools(tools: Sequence[Tool], safe: Safe) -> tuple[Tool, ...]:
    return tuple(
        structs.replace(
            tool,
            name=safe(tool.name),
            description=None if tool.description is None else safe(tool.description),
            parameters=_json(tool.parameters, safe),
        )
        for tool in tools
    )


def mapping_or_text(text: str) -> dict[str, object] | str:
    """The JSON object that `text` is; `text` itself where it is none, or too deep to read."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, dict) else text


def _message(message: Message, safe: Safe) -> Message:
    parts = tuple(_part(part, safe) for part in message.parts)
    return message if parts == message.parts else structs.replace(message, parts=parts)


def _part(part: Part, safe: Safe) -> Part:
    match part:
        case Text():
            return Text(safe(part.text))
        case Reasoning():
            return Reasoning(safe(part.text))
        case ToolCall():
            return ToolCall(safe(part.call_id), safe(part.name), _json(part.arguments, safe))
        case ToolResult():
            return ToolResult(safe(part.call_id), safe(part.text), part.is_error)


def _json(text: str, safe: Safe) -> str:
    """Made safe as it is read; written anew only where that changes it."""
    value = mapping_or_text(text)
    if isinstance(value, str):
        return safe(text)
    changed = _value(value, safe, MAX_DEPTH)
    return text if changed == value else json.dumps(changed, ensure_ascii=False)


def _value(value: object, safe: Safe, depth: int) -> object:
    if isinstance(value, str):
        return safe(value)
    if not isinstance(value, dict | list):
        return value
    if not depth:
        raise TemplateRejected(_TOO_DEEP)
    if isinstance(value, dict):
        return {safe(str(key)): _value(item, safe, depth - 1) for key, item in value.items()}
    return [_value(item, safe, depth - 1) for item in value]


def _read_out(text: str) -> str:
    value = mapping_or_text(text)
    try:
        return "" if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    except RecursionError:
        raise TemplateRejected(_TOO_DEEP) from None
