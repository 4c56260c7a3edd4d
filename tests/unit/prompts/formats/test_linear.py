"""Reading takes time in proportion to a reply's length, also where the reply is made to take long."""

from __future__ import annotations

import time

import pytest

from support.replies import tool
from warmlane.prompts.formats import format_named

_TOOLS = (tool("write", {"content": {"type": "string"}, "n": {"type": "integer"}}),)
_SIZE = 40_000
_MOST_S = 10.0
"""Of processor time. A reply of this size takes about a fifth of a second; read in quadratic time, a minute."""

_REPLIES = {
    "text": ("hermes", "", "the quick brown fox "),
    "openers": ("hermes", "", "<tool_call>"),
    "half openers": ("hermes", "", "<tool_cal"),
    "openers with names": ("glm-4.7", "", "<tool_call>write"),
    "openers without an end": ("kimi-k2", "", "<|tool_call_begin|>"),
    "white space": ("hermes", "hi", " \n"),
    "white space in a call": ("hermes", "<tool_call>", " "),
    "a long string": ("hermes", '<tool_call>\n{"name": "write", "arguments": {"content": "', "x\\n"),
    "a long number": ("hermes", '<tool_call>\n{"name": "write", "arguments": {"n": ', "1"),
    "many members": ("hermes", '<tool_call>\n{"name": "write", "arguments": {', '"n": 1, '),
    "arguments before the name": ("hermes", '<tool_call>\n{"arguments": {"content": "', "abc "),
    "half closers": ("qwen-xml", "<tool_call>\n<function=write>\n<parameter=content>\n", "</parameter> x"),
    "closers and gaps": ("qwen-xml", "<tool_call>\n<function=write>\n<parameter=content>\n", "</parameter>" + " " * 60),
    "values to be typed": ("qwen-xml", "<tool_call>\n<function=write>\n<parameter=n>\n", "1 "),
    "bare JSON": ("llama", '{"name": "write", "parameters": {"content": "', "x "),
    "a bare list": ("llama", "[write(content='", "x\\'"),
    "bare values": ("gemma4", "<|tool_call>call:write{n:", "1 "),
    "noise": ("kimi-k2", "<|tool_calls_section_begin|>", "noise "),
    "headers": ("gpt-oss", "", "<|start|>assistant<|channel|>x"),
    "ends": ("gpt-oss", "<|channel|>final<|message|>", "<|end|> "),
}


@pytest.mark.parametrize(("name", "start", "more"), _REPLIES.values(), ids=_REPLIES.keys())
def test_reading_is_linear(name: str, start: str, more: str) -> None:
    reply = start + more * (_SIZE // len(more))
    began = time.process_time()
    for pieces in (reply, [reply]):
        parser = format_named(name).parser(_TOOLS, new_call_id=lambda: "c")
        for piece in pieces:
            parser.feed(piece)
        parser.finish()
        assert parser.parts or parser.truncated_call
    assert time.process_time() - began < _MOST_S
