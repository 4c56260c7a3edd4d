"""What a family writes is read back as it was meant."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from support.replies import told
from warmlane.conversation.messages import Part, Reasoning, Text, ToolCall
from warmlane.conversation.tools import Tool
from warmlane.prompts.formats.families import Family, format_named, format_names
from warmlane.prompts.formats.render import written_reply
from warmlane.prompts.formats.writing import Arguments

_STRANGE = (
    *("</tool_call>", "<tool_call>", "}{", '"}}', "\u2028", "\u2029", "\\", '\\"', "\n", "```json", "<think>"),
    *("</think>", "<parameter=x>", "</function>", "</parameter>", "</arg_value> ", "<|tool_call_end|>", "[/THINK]"),
    *("<|call|>", "<｜tool▁call▁end｜>", "</｜DSML｜invoke>", "<|close|>call<|sep|>", "<tool_call|>", "{", "[", "]"),
    *("'", "#", "&amp;", "é"),
)  # fmt: skip

_GLM_CLOSES = re.compile(r"</(?:arg_value|tool_call)>(?:\s|\\n)*</?(?:tool_call|arg_key)")
"""GLM writes text as it is: one that holds its markup for the end of a value, with what follows it, cannot be told."""

_letters = st.text(alphabet="abc é🌸.", min_size=1, max_size=12)
_strings = st.lists(st.sampled_from(_STRANGE) | _letters, max_size=6).map("".join)
_scalars = st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats(allow_nan=False, allow_infinity=False)
_keys = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True)
_values = st.recursive(
    _scalars | _strings,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys, inner, max_size=3),
    max_leaves=8,
)
_arguments = st.dictionaries(_keys, _values, max_size=4)
_names = st.from_regex(r"[a-z_][a-zA-Z0-9_]{0,15}", fullmatch=True)
_calls = st.lists(st.tuples(_names, _arguments), max_size=3, unique_by=lambda call: call[0])

_TYPES = {
    type(None): "null", bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"
}  # fmt: skip


def _family(name: str) -> Family:
    family = format_named(name)
    assert isinstance(family, Family)
    return family


def _tool(name: str, arguments: dict[str, object]) -> Tool:
    properties = {key: {"type": _TYPES[type(value)]} for key, value in arguments.items()}
    return Tool(name=name, parameters=json.dumps({"type": "object", "properties": properties}))


def _raw_strings(arguments: dict[str, object]) -> str:
    return "\n".join(value for value in arguments.values() if isinstance(value, str))


@pytest.mark.parametrize("name", format_names())
@settings(max_examples=12, deadline=None)
@given(thought=st.none() | _letters, text=st.none() | _letters, calls=_calls, inside=st.booleans())
def test_replies_come_back(
    name: str,
    thought: str | None,
    text: str | None,
    calls: list[tuple[str, dict[str, object]]],
    inside: bool,
) -> None:
    family = _family(name)
    writing = family.writing
    if writing.between is None:
        calls = calls[:1]
    if writing.alone and calls:
        text = None
    if writing.thought is None:
        thought, inside = None, False
    if writing.arguments is Arguments.LOOSE:
        assume(not any('<|"|>' in json.dumps(arguments, ensure_ascii=False) for _, arguments in calls))
    if name.startswith("glm"):
        assume(not any(_GLM_CLOSES.search(json.dumps(arguments, ensure_ascii=False)) for _, arguments in calls))
    parts: list[Part] = []
    if thought is not None and thought.strip():
        parts.append(Reasoning(thought.strip()))
    if text is not None and text.strip():
        parts.append(Text(text.strip()))
    parts += [ToolCall(str(i), n, json.dumps(a, ensure_ascii=False)) for i, (n, a) in enumerate(calls)]
    tools = [_tool(n, a) for n, a in calls] or [Tool(name="unused")]
    opening = writing.thought[0] if inside and writing.thought else ""
    reply = written_reply(writing, parts, inside=inside)
    heard = told(family, [reply], tools, opening=opening)
    assert heard.reasoning.strip() == "".join(p.text for p in parts if isinstance(p, Reasoning))
    assert heard.text.strip() == "".join(p.text for p in parts if isinstance(p, Text))
    assert heard.named == calls
    assert not heard.incomplete
    assert not heard.truncated
    assert len({call[0] for call in heard.calls}) == len(heard.calls)
