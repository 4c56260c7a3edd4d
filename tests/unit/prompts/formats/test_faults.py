"""Faults other servers have had with tool calls: marks inside arguments, calls that break off, names nobody knows."""

from __future__ import annotations

import json

import pytest

from support.replies import told, tool
from warmlane.conversation.messages import Text, ToolCall
from warmlane.conversation.tools import Tool
from warmlane.prompts.formats import format_named, format_names
from warmlane.prompts.formats.families import Family
from warmlane.prompts.formats.render import written_reply

_TOOLS = (
    tool("write", {"path": {"type": "string"}, "content": {"type": "string"}}),
    tool("get", {"city": {"type": "string"}, "n": {"type": "integer"}}),
)
_HERMES = format_named("hermes")


def _family(name: str) -> Family:
    family = format_named(name)
    assert isinstance(family, Family)
    return family


def _written(name: str, *calls: tuple[str, dict[str, object]], text: str = "") -> str:
    parts = [ToolCall("", n, json.dumps(a, ensure_ascii=False)) for n, a in calls]
    return written_reply(_family(name).writing, [*([Text(text)] if text else []), *parts])


_CONTENTS = {
    "a closing mark": "before </tool_call> after",
    "every mark": "<tool_call> </tool_call> <think> </think> [TOOL_CALLS] <|tool_call_end|> <|call|> </function>",
    "braces": '}{ }}} {"name": "x", "arguments": {}}',
    "quotes": 'say \\"hi\\" and \'ho\' "',
    "a code block": '```json\n{"a": 1}\n```\n',
    "line separators": "one\u2028two\u2029three\r\nfour",
    "forty kilobytes": "the quick brown fox; café, 東京.\n" * 1250,
}


@pytest.mark.parametrize("content", _CONTENTS.values(), ids=_CONTENTS.keys())
@pytest.mark.parametrize("name", format_names())
def test_what_an_argument_holds_is_an_argument(name: str, content: str) -> None:
    if name == "llama-pythonic" and "'" in content:
        content = content.replace("\\", "")
    arguments: dict[str, object] = {"path": "x.md", "content": content}
    reply = _written(name, ("write", arguments))
    size = 1 if len(reply) < 2000 else 11
    for pieces in ([reply], [reply[at : at + size] for at in range(0, len(reply), size)]):
        heard = told(format_named(name), pieces, _TOOLS)
        assert heard.named == [("write", arguments)]
        assert heard.text == ""


def test_every_cut_of_a_call_with_marks_inside() -> None:
    arguments = {"path": "}{\u2028", "content": '</tool_call>\n{"name": "x"} \\" <tool_call>'}
    reply = _written("hermes", ("write", dict(arguments)), text="Look:")
    for cut in range(len(reply) + 1):
        heard = told(_HERMES, [reply[:cut], reply[cut:]], _TOOLS)
        assert heard.named == [("write", arguments)]
        assert heard.text == "Look:"


@pytest.mark.parametrize("name", [n for n in format_names() if n != "gpt-oss"])
def test_calls_made_together_have_indexes_and_ids_of_their_own(name: str) -> None:
    calls: list[tuple[str, dict[str, object]]] = [("get", {"city": c}) for c in ("Oslo", "Bergen", "Oslo")]
    heard = told(format_named(name), [_written(name, *calls)], _TOOLS)
    assert heard.named == calls
    assert len({call_id for call_id, _, _ in heard.calls}) == 3


@pytest.mark.parametrize(
    ("name", "reply", "ids"),
    [
        ("mistral", 2 * "[TOOL_CALLS]get[CALL_ID]abc123456[ARGS]{}", ["abc123456", "new_0"]),
        ("mistral-v3", '[TOOL_CALLS] [{"id": "i1", "name": "get", "arguments": {}}]', ["i1"]),
        ("kimi-k2", "<|tool_call_begin|>functions.get:7<|tool_call_argument_begin|>{}", ["functions.get:7"]),
        ("hermes", '<tool_call>\n{"id": "h9", "name": "get", "arguments": {}}\n</tool_call>', ["h9"]),
    ],
)
def test_ids_the_model_wrote_are_kept_once(name: str, reply: str, ids: list[str]) -> None:
    assert [call[0] for call in told(format_named(name), [reply], _TOOLS).calls] == ids


_CUT_OFF = {
    "in the name": '<tool_call>\n{"name": "ge',
    "after the name": '<tool_call>\n{"name": "get"',
    "in the arguments": '<tool_call>\n{"name": "get", "arguments": {"city": "San Fr',
    "before the last brace": '<tool_call>\n{"name": "get", "arguments": {"city": "Oslo"}',
    "after the opener": "<tool_call>",
}


@pytest.mark.parametrize("cut_off", _CUT_OFF.values(), ids=_CUT_OFF.keys())
def test_a_reply_that_ends_inside_a_call_says_so(cut_off: str) -> None:
    heard = told(_HERMES, ["Wait.\n", cut_off], _TOOLS)
    assert heard.truncated
    assert heard.whole == ()
    assert heard.text == "Wait."
    whole = told(_HERMES, ["Wait.\n", cut_off], _TOOLS, whole_calls=True)
    assert whole.truncated
    assert whole.calls == ()
    assert whole.text == "Wait."


def test_arguments_are_told_as_they_come() -> None:
    parser = _HERMES.parser(_TOOLS, new_call_id=lambda: "c")
    parser.feed('<tool_call>\n{"name": "write", "arguments": {"path": "a", "content": "lin')
    [delta] = parser.feed("e one\\nline")
    assert delta.arguments == "e one\\nline"  # type: ignore[union-attr]
    parser.feed(' two"}}\n</tool_call>')
    assert parser.finish() == []
    assert not parser.truncated_call


def test_string_parameters_are_told_as_they_come() -> None:
    parser = format_named("qwen-xml").parser(_TOOLS, new_call_id=lambda: "c")
    parser.feed("<tool_call>\n<function=write>\n<parameter=content>\nline ")
    [delta] = parser.feed("one\ntwo")
    assert delta.arguments == "one\\ntwo"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "reply",
    [
        "<tool_call>not json</tool_call>",
        'Use <tool_call> tags, then {"name": ...}.',
        '<tool_call>\n{"name": 5, "arguments": {}}\n</tool_call>',
        '<tool_call>\n{"arguments": {"city": "Oslo"}}\n</tool_call>',
        '<tool_call>\n{"name": "get", "arguments": [1]}\n</tool_call>',
        "<tool_call><tool_call><tool_call> oh",
    ],
)
def test_what_is_no_call_is_text_in_full(reply: str) -> None:
    heard = told(_HERMES, [reply], _TOOLS, whole_calls=True)
    assert heard.calls == ()
    assert heard.text == reply
    assert not heard.truncated


def test_a_call_that_breaks_off_is_told_as_incomplete_and_the_rest_as_text() -> None:
    reply = '<tool_call>\n{"name": "get", "arguments": {"city" "Oslo"}}\n</tool_call>'
    heard = told(_HERMES, [reply], _TOOLS)
    assert heard.calls == (("new_0", "get", '{"city" '),)
    assert heard.incomplete == {0}
    assert heard.text == '"Oslo"}}\n</tool_call>'
    assert told(_HERMES, [reply], _TOOLS, whole_calls=True).text == reply


@pytest.mark.parametrize(
    ("written", "arguments"),
    [
        ('{"name": "get", "arguments": {"city": "a\nb"}}', {"city": "a\nb"}),
        ('{"name": "get", "arguments": {"city": "\\d+"}}', {"city": "\\d+"}),
        ('{"name": "get", "arguments": "{\\"city\\": \\"Oslo\\"}"}', {"city": "Oslo"}),
        ('{"name": "get", "arguments": null}', {}),
        ('{"name": "get"}', {}),
        ('{"arguments": {"n": 1}, "name": "get"}', {"n": 1}),
        ('{"type": "function", "name": "get", "parameters": {"n": None}}', {"n": None}),
        ('{"name": "get", "arguments": {"n": 1}}}', {"n": 1}),
        ('{"name": "get", "arguments": {"n": 1}', {"n": 1}),
    ],
)
def test_near_misses_are_mended(written: str, arguments: dict[str, object]) -> None:
    heard = told(_HERMES, [f"<tool_call>\n{written}\n</tool_call>"], _TOOLS)
    assert heard.named == [("get", arguments)]
    assert heard.text == ""


@pytest.mark.parametrize("name", [n for n in format_names() if n not in ("llama", "llama-pythonic")])
def test_a_call_of_an_unknown_tool_is_a_call(name: str) -> None:
    heard = told(format_named(name), [_written(name, ("unheard_of", {"a": "b"}))], _TOOLS)
    assert heard.named == [("unheard_of", {"a": "b"})]


@pytest.mark.parametrize(
    "reply", ['{"name": "Ann", "parameters": {"age": 5}}', "[hello(world=1)]", '{"a": 1} is a dict']
)
def test_bare_json_is_a_call_only_of_a_known_tool(reply: str) -> None:
    heard = told(format_named("llama"), [reply], _TOOLS)
    assert heard.calls == ()
    assert heard.text == reply


@pytest.mark.parametrize("name", format_names())
def test_without_tools_all_markup_of_calls_is_text(name: str) -> None:
    reply = _written(name, ("get", {"city": "Oslo"}))
    heard = told(format_named(name), [reply], ())
    assert heard.calls == ()
    assert '"Oslo"' in heard.text or "Oslo" in heard.text


def test_reasoning_opened_by_the_prompt_or_by_the_reply() -> None:
    reply = "Let me see.\n</think>\n\nHello."
    for pieces, opening in (
        ([reply], "<|im_start|>assistant\n<think>\n"),
        (["<think>\n", reply], "<|im_start|>assistant\n"),
    ):
        heard = told(_HERMES, pieces, (), opening=opening)
        assert (heard.reasoning, heard.text) == ("Let me see.", "Hello.")
    closed = told(_HERMES, ["Hello."], (), opening="<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert (closed.reasoning, closed.text) == ("", "Hello.")


def test_a_thought_is_one_only_where_a_reply_may_begin_with_it() -> None:
    heard = told(_HERMES, ["The tag <think> opens reasoning, </think> ends it."], ())
    assert heard.reasoning == ""
    assert heard.text == "The tag <think> opens reasoning, </think> ends it."


def test_plain_text_is_told_to_the_letter() -> None:
    text = "\n  indented\n\n<think>not a thought</think>  \n"
    heard = told(format_named("plain"), [text], (Tool(name="get"),))
    assert heard.text == text


def test_white_space_alone_beside_calls_is_no_text() -> None:
    call = '<tool_call>\n{"name": "get", "arguments": {}}\n</tool_call>'
    plain, tools = format_named("plain"), (Tool(name="get"),)
    heard = told(plain, [f"{call}\n", f" \n{call}", "\n"], tools)
    assert (heard.text, len(heard.named)) == ("", 2)
    heard = told(plain, [call, "\n", " and\n", call], tools)
    assert (heard.text, len(heard.named)) == ("\n and\n", 2)


def test_noise_is_told_only_if_nothing_else_is() -> None:
    kimi = format_named("kimi-k2")
    section = "<|tool_calls_section_begin|> hm <|tool_calls_section_end|>"
    assert told(kimi, [section], _TOOLS).text == "hm"
    assert told(kimi, ["Yes.", section], _TOOLS).text == "Yes."
