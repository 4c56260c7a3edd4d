"""Tool results answer exactly the open calls, in their order."""

from __future__ import annotations

import pytest

from warmlane.conversation.messages import Message, Role, Text, ToolCall, ToolResult
from warmlane.errors import InvalidRequest
from warmlane.sessions import canonical_tool_results, open_calls


def calls(*ids: str) -> Message:
    return Message(Role.ASSISTANT, tuple(ToolCall(call_id, "f", "{}") for call_id in ids))


def result(*ids: str) -> Message:
    return Message(Role.TOOL, tuple(ToolResult(call_id, f"of {call_id}") for call_id in ids))


USER = Message(Role.USER, (Text("hello"),))


def test_results_are_put_in_the_order_of_the_calls() -> None:
    assert canonical_tool_results((USER, calls("a", "b")), (result("b"), USER, result("a"))) == (
        result("a"),
        result("b"),
        USER,
    )


def test_results_and_text_in_one_message_are_parted() -> None:
    mixed = Message(Role.USER, (Text("look"), ToolResult("b", "of b"), ToolResult("a", "of a")))
    assert canonical_tool_results((calls("a", "b"),), (mixed,)) == (
        result("a"),
        result("b"),
        Message(Role.USER, (Text("look"),)),
    )


def test_a_whole_history_is_checked_turn_by_turn() -> None:
    history = (USER, calls("a"), calls("b"), result("b", "a"), calls("c"), result("c"), USER)
    assert canonical_tool_results((), history) == (
        USER,
        calls("a"),
        calls("b"),
        result("a"),
        result("b"),
        calls("c"),
        result("c"),
        USER,
    )


def test_a_conversation_without_calls_is_left_alone() -> None:
    assert canonical_tool_results((USER,), (USER,)) == (USER,)
    assert canonical_tool_results((), ()) == ()


@pytest.mark.parametrize(
    ("history", "added", "named"),
    [
        ((calls("a", "b"),), (result("a"),), "'b' has no result"),
        ((calls("a"),), (USER,), "'a' has no result"),
        ((calls("a"),), (), "'a' has no result"),
        ((), (calls("a"), USER, calls("b")), "'a' has no result"),
        ((calls("a"),), (result("a"), result("a")), "'a' is answered twice"),
        ((calls("a"),), (result("a", "x"),), "No tool call 'x' is open"),
        ((USER,), (result("a"),), "No tool call 'a' is open"),
        ((calls("a"), result("a")), (result("a"),), "No tool call 'a' is open"),
        ((), (calls("a", "a"),), "Two calls of one turn have the id 'a'"),
    ],
)
def test_anything_else_is_refused_by_call_id(
    history: tuple[Message, ...], added: tuple[Message, ...], named: str
) -> None:
    with pytest.raises(InvalidRequest, match=named) as caught:
        canonical_tool_results(history, added, param="messages")
    assert caught.value.param == "messages"


def test_open_calls_are_those_without_a_result() -> None:
    assert open_calls((calls("a", "b"), result("b"))) == ("a",)
    assert open_calls((calls("a"), result("a"), calls("b"))) == ("b",)


def test_a_call_that_was_cut_off_may_be_answered_and_need_not() -> None:
    cut = Message(Role.ASSISTANT, (ToolCall("a", "f", "{}"), ToolCall("b", "f", '{"x": ')))
    assert canonical_tool_results((cut,), (result("a"), USER)) == (result("a"), USER)
    assert canonical_tool_results((cut,), (result("b", "a"),)) == (result("a"), result("b"))
    with pytest.raises(InvalidRequest, match="'a' has no result"):
        canonical_tool_results((cut,), (result("b"),))
    assert canonical_tool_results((), (cut, result("a"), USER)) == (cut, result("a"), USER)
    assert open_calls((cut, result("a"), USER, calls("c"))) == ("c",)
