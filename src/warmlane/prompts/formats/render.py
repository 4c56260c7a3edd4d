"""Calls and whole replies as a family writes them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from warmlane.conversation.messages import Part, Reasoning, Text, ToolCall
from warmlane.prompts.formats.notation import GEMMA, PYTHON
from warmlane.prompts.formats.writing import Arguments, Elements, Kind, Writing, entities


def written_calls(writing: Writing, calls: Sequence[ToolCall]) -> str:
    """All the calls of a reply. A family that makes one at a time has them one behind the other all the same."""
    bodies = [_call(writing, call, index) for index, call in enumerate(calls, writing.first_index)]
    return writing.begin + (writing.between or "").join(bodies) + writing.end if bodies else ""


def _call(writing: Writing, call: ToolCall, index: int) -> str:
    head = (call.name + writing.middle).replace("{index}", str(index))
    return writing.open + head + _arguments(writing, call) + writing.close


def written_reply(writing: Writing, parts: Sequence[Part], *, inside: bool = False) -> str:
    """A reply of at most one thought, then at most one text, then calls. `inside`: the prompt opened the thought."""
    thought = "".join(part.text for part in parts if isinstance(part, Reasoning))
    text = "".join(part.text for part in parts if isinstance(part, Text))
    calls = [part for part in parts if isinstance(part, ToolCall)]
    before, behind = writing.thought or ("", "")
    reply = ("" if inside else before) + thought + behind if thought or inside else ""
    around = writing.preamble if calls and writing.preamble is not None else writing.text
    if text or (around[1] and not writing.preamble):
        reply += around[0] + text + around[1]
    if calls:
        reply += (writing.gap if text else "") + written_calls(writing, calls)
    return reply + writing.last


def _arguments(writing: Writing, call: ToolCall) -> str:
    if writing.arguments is Arguments.JSON:
        return call.arguments
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return call.arguments
    if not isinstance(arguments, dict):
        return call.arguments
    if writing.elements is not None:
        return "".join(_element(writing.elements, key, value) for key, value in arguments.items())
    notation = GEMMA if writing.arguments is Arguments.LOOSE else PYTHON
    return notation.write_arguments(arguments)


_TYPES: Mapping[type, str] = {
    bool: "boolean", int: "number", float: "number", str: "string", list: "array", dict: "object", type(None): "null"
}  # fmt: skip


def _element(how: Elements, key: str, value: object) -> str:
    string = isinstance(value, str)
    kind = _TYPES[type(value)] if how.kind is Kind.JSON_TYPE else str(string).lower()
    shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    name = entities(key) if how.entities else key
    return how.open + name + how.middle.replace("{kind}", kind) + shown + how.close
