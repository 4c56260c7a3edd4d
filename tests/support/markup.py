"""Random replies full of the markup of all families."""

from __future__ import annotations

from hypothesis import strategies as st

from support.replies import tool

TOOLS = (
    tool("get", {"city": {"type": "string"}, "n": {"type": "integer"}, "filters": {"type": "object"}}),
    tool("now"),
)

MARKUP = (
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

OPENINGS = (
    "",
    "<think>\n",
    "<|open|>think<|sep|>",
    "<|open|>response<|sep|>",
    "<|channel|>analysis<|message|>",
    "[THINK]",
)

REPLIES = st.lists(st.sampled_from(MARKUP) | st.text(max_size=6), max_size=24).map("".join)
