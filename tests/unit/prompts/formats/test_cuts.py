"""What a reply says does not depend on where its stream was cut, whatever it says."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.replies import told, tool
from warmlane.prompts.formats import format_named, format_names

_TOOLS = (
    tool("get", {"city": {"type": "string"}, "n": {"type": "integer"}, "filters": {"type": "object"}}),
    tool("now"),
)

_MARKUP = (
    *("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_call>\n", "<tool_call>get", "</"),
    *('{"name": "get", "arguments": {"city": "P"}}', '{"name": "', '"arguments": {', '"parameters": ', "}}", "{}"),
    *("<function=get>\n", "<parameter=city>\n", "</parameter>", "\n</parameter>\n", "</function>", "\n<parameter=n>"),
    *("<arg_key>city</arg_key>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "12", "null", "true"),
    *("<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "function<｜tool▁sep｜>get\n```json\n", "<｜tool▁sep｜>"),
    *("\n```<｜tool▁call▁end｜>", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>", "<｜DSML｜tool_calls>"),
    *('<｜DSML｜invoke name="get">', '<｜DSML｜parameter name="city" string="true">', "</｜DSML｜parameter>"),
    *("</｜DSML｜invoke>", "</｜DSML｜tool_calls>", '<｜DSML｜invoke name="now"/>', "<｜DSML｜ calls>"),
    *("<|tool_calls_section_begin|>", "<|tool_call_begin|>functions.get:0", "<|tool_call_argument_begin|>"),
    *("<|tool_call_end|>", "<|tool_calls_section_end|>", "<|open|>think<|sep|>", "<|close|>think<|sep|>"),
    *("<|open|>response<|sep|>", "<|close|>response<|sep|>", "<|open|>tools<|sep|>", "<|close|>tools<|sep|>"),
    *('<|open|>call tool="get" index="1"<|sep|>', '<|open|>argument key="n" type="number"<|sep|>'),
    *("<|close|>argument<|sep|>", "<|close|>call<|sep|>", "[TOOL_CALLS]", "get[ARGS]", "[CALL_ID]a1[ARGS]", "[THINK]"),
    *("[/THINK]", "[TOOL_CALLS] [", "<|python_tag|>", "[get(city='P", "', n=3)", "[now(), ", "<|python_start|>", "]"),
    *("<|tool_call>call:get{", "city:", '<|"|>', "<tool_call|>", "<|channel>thought\n", "<channel|>", "n:[1,{a:2}]"),
    *("<|start|>assistant", "<|channel|>analysis", "<|channel|>final", "<|channel|>commentary to=functions.get "),
    *("<|constrain|>json", "<|message|>", "<|end|>", "<|call|>", "<|return|>"),
    *(" ", "\n", "\n\n", "\t", "\\", '\\"', "\\u00e9", "\u2028", "é", "🌸", ",", ":", ";", "a"),
    *("(", ")", "'", '"', "{", "["),
)  # fmt: skip

_OPENINGS = (
    "",
    "<think>\n",
    "<|open|>think<|sep|>",
    "<|open|>response<|sep|>",
    "<|channel|>analysis<|message|>",
    "[THINK]",
)

_replies = st.lists(st.sampled_from(_MARKUP) | st.text(max_size=6), max_size=24).map("".join)


@pytest.mark.parametrize("name", format_names())
@settings(max_examples=120, deadline=None)
@given(
    reply=_replies,
    cuts=st.lists(st.integers(0, 400), max_size=12),
    opening=st.sampled_from(_OPENINGS),
    with_tools=st.booleans(),
    whole_calls=st.booleans(),
)
def test_cuts_do_not_matter(
    name: str, reply: str, cuts: list[int], opening: str, with_tools: bool, whole_calls: bool
) -> None:
    form, tools = format_named(name), _TOOLS if with_tools else ()
    at_once = told(form, [reply], tools, opening=opening, whole_calls=whole_calls)
    edges = [0, *sorted(cut for cut in cuts if cut < len(reply)), len(reply)]
    pieces = [reply[a:b] for a, b in pairwise(edges)]
    assert told(form, pieces, tools, opening=opening, whole_calls=whole_calls) == at_once
    assert told(form, reply, tools, opening=opening, whole_calls=whole_calls) == at_once


@pytest.mark.parametrize("name", format_names())
@settings(max_examples=60, deadline=None)
@given(reply=_replies)
def test_whole_calls_are_those_told_as_they_come(name: str, reply: str) -> None:
    streamed = told(format_named(name), [reply], _TOOLS)
    whole = told(format_named(name), [reply], _TOOLS, whole_calls=True)
    assert not whole.incomplete
    assert whole.truncated == streamed.truncated
    assert [call[1:] for call in whole.calls] == [call[1:] for call in streamed.whole]
    if not streamed.incomplete:
        assert replace(whole, calls=(), parts=()) == replace(streamed, calls=(), parts=())


@pytest.mark.parametrize("name", format_names())
@settings(max_examples=60, deadline=None)
@given(reply=st.lists(st.sampled_from([m for m in _MARKUP if m.strip(" \n\t")]), min_size=1, max_size=10).map("".join))
def test_what_was_said_is_never_lost_altogether(name: str, reply: str) -> None:
    """A reply tells something, ends inside a call, or is made of nothing but markup."""
    reply += " said "
    heard = told(format_named(name), [reply], _TOOLS)
    assert heard.parts or heard.truncated
