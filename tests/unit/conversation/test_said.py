"""What a message says does not depend on how a client writes it down."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warmlane.conversation.messages import Message, Part, Reasoning, Role, Text, ToolCall, ToolResult
from warmlane.conversation.said import canonical_arguments, said, same_content

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def assistant(*parts: Part) -> Message:
    return Message(Role.ASSISTANT, parts)


@given(st.dictionaries(st.text(), JSON, max_size=4))
def test_arguments_are_the_same_in_any_spacing_and_order(arguments: dict[str, object]) -> None:
    turned = dict(reversed(list(arguments.items())))
    assert canonical_arguments(json.dumps(arguments)) == canonical_arguments(
        json.dumps(turned, indent=2, ensure_ascii=False)
    )


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ('{"a": 1.0}', '{"a":1}', True),
        ('{"a": "\\u00e9"}', '{"a":"é"}', True),
        ('{"a": 1}', '{"a": "1"}', False),
        ('{"a": true}', '{"a": 1}', False),
        ('{"a": 1', '{"a": 1', True),
        ('{"a": 1', '{"a":1', False),
        ('{"a": 1e999}', '{"a": 1}', False),
    ],
)
def test_what_counts_as_the_same(a: str, b: str, same: bool) -> None:
    assert (canonical_arguments(a) == canonical_arguments(b)) == same


def test_parts_are_joined_and_ids_left_out() -> None:
    one = assistant(Reasoning("h"), Reasoning("m\n"), Text("\nhel"), Text("lo "), ToolCall("a", "f", '{"x": 1}'))
    two = assistant(Reasoning("hm"), Text("hello"), ToolCall("b", "f", '{"x":1}'))
    assert said(one.parts) == said(two.parts)
    assert said(one.parts) != said(assistant(Text("hello")).parts)


def test_the_same_content_in_an_assistants_words_only() -> None:
    call = ToolCall("a", "f", '{"x": 1}')
    assert same_content(assistant(Reasoning("hm"), call), assistant(ToolCall("b", "f", '{"x":1}')))
    assert not same_content(assistant(call), assistant(ToolCall("a", "f", '{"x":2}')))
    assert not same_content(Message(Role.USER, (Text("a"),)), Message(Role.USER, (Text("a "),)))
    assert not same_content(Message(Role.USER, (Text("a"),)), assistant(Text("a")))
    result = Message(Role.TOOL, (ToolResult("a", "x"),))
    assert not same_content(result, Message(Role.TOOL, (ToolResult("b", "x"),)))
