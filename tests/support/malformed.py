"""Bodies that are wrong in one way or another: every one of them is to be refused."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from support.dialects import body_of

N_BODIES = 300
TOO_LARGE_BYTES = 11 << 20


@dataclass(frozen=True, slots=True)
class Body:
    content: bytes = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)


_NO_NUMBER: tuple[object, ...] = ("1", True, [], {}, [1])
_NO_STRING: tuple[object, ...] = (5, True, ["a"], {"a": "b"}, 1.5)
_NO_COUNT: tuple[object, ...] = (*_NO_NUMBER, 0, -1, -(2**70), 1.5)
_NO_BLOCK: tuple[object, ...] = (5, "text", [], {}, {"type": 5}, {"type": "text"}, {"type": "text", "text": 5})
_NO_CONTENT: tuple[object, ...] = (5, True, {"type": "text"}, *([block] for block in (*_NO_BLOCK, {"type": "image"})))
_NO_MESSAGE: tuple[object, ...] = (
    5,
    "hi",
    [],
    {},
    {"role": "user"},
    {"content": "hi"},
    {"role": 5, "content": "hi"},
    {"role": "nobody", "content": "hi"},
    *({"role": role, "content": content} for role in ("user", "assistant", "system") for content in _NO_CONTENT),
)
_NO_DIALOGUE: tuple[object, ...] = (5, True, {}, *([message] for message in _NO_MESSAGE))
_NO_TOOLS: tuple[object, ...] = (
    5,
    "f",
    {"a": 1},
    ["f"],
    [{}],
    [{"type": "function"}],
    [{"type": "function", "name": 5}],
)
_NO_SCHEMA: tuple[object, ...] = (5, "object", [])
_NO_CHAT_CALL: tuple[object, ...] = (
    *(5, "f", {}, {"id": "c"}, {"id": "c", "function": {}}, {"id": "c", "function": {"name": "f"}}),
    {"function": {"name": "f", "arguments": "{}"}},
    {"id": "c", "type": "custom", "custom": {"name": "f", "input": "x"}},
    {"id": "c", "function": {"name": "f", "arguments": 5}},
)
_NO_TOOL_USE: tuple[object, ...] = (
    *({"type": "tool_use", **fields} for fields in ({}, {"id": "t", "name": "f"}, {"id": "t", "input": {}})),
    {"type": "tool_use", "id": "t", "name": "f", "input": "{}"},
    {"type": "server_tool_use", "id": "t", "name": "f", "input": {}},
    {"type": "thinking", "thinking": 5},
)
_NO_TOOL_RESULT: tuple[object, ...] = (
    *({"type": "tool_result", "tool_use_id": "t", "content": content} for content in (5, {}, [5], [{}], [{"type": 5}])),
    {"type": "tool_result", "content": "x"},
    {"type": "tool_result", "tool_use_id": "t", "is_error": "no"},
    {"type": "document", "source": {"type": "url", "url": "http://a/b.pdf"}},
)
_HI: dict[str, object] = {"role": "user", "content": "hi"}

_COMMON: dict[str, tuple[object, ...]] = {
    "model": (*_NO_STRING, None, "", "x" * 300, "no-such-model"),
    "temperature": (*_NO_NUMBER, -0.1, 99, 2.5),
    "top_p": (*_NO_NUMBER, 0, -1, 1.5),
    "stream": (1, "yes", [], {}),
    "cache_salt": (*_NO_STRING, "", "s" * 300),
    "tool_choice": ({"type": "any"}, {"type": "function", "name": "f"}, {"type": "tool", "name": "f"}),
    "n": (17, 0),
    "logit_bias": ({"50256": -100},),
}
_FIELDS: dict[str, dict[str, tuple[object, ...]]] = {
    "responses": {
        "input": (*_NO_DIALOGUE, [{"type": "no_such_item"}], [{"type": "function_call_output", "call_id": "c"}]),
        "tools": (*_NO_TOOLS, [{"name": "f", "input_schema": {}}]),
        "reasoning": (5, "high", {"effort": "some"}, {"summary": 5}),
        "top_logprobs": (*_NO_NUMBER, -1, 21),
        "max_output_tokens": _NO_COUNT,
        "instructions": _NO_STRING,
        "previous_response_id": (*_NO_STRING, "resp_unknown", ""),
        "metadata": (5, [], {"a": 5}, {"a": "x" * 600}, {"retention_seconds": "soon"}, {"retention_seconds": "1"}),
        "text": (5, {"format": {"type": "json_schema"}}, {"format": {"type": "yaml"}}, {"format": 5}),
        "background": (1, "yes"),
        "messages": ([{"role": "user", "content": "hi"}],),
        "presence_penalty": (*_NO_NUMBER, 3, -3),
    },
    "messages": {
        "messages": (
            *(*_NO_DIALOGUE, None, [], [_HI, {"role": "assistant", "content": "hi "}]),
            *([_HI, {"role": "assistant", "content": [block]}, _HI] for block in _NO_TOOL_USE),
            *([{"role": "user", "content": [block]}] for block in _NO_TOOL_RESULT),
        ),
        "tools": (
            *(5, {"a": 1}, [5], [{}], [{"name": "f"}], [{"input_schema": {}}], [{"type": "function", "name": "f"}]),
            *([{"name": "f", "input_schema": schema}] for schema in _NO_SCHEMA),
            *([{"name": name, "input_schema": {}}] for name in (5, "", "a b", "n" * 200)),
            [{"name": "f", "input_schema": {}}] * 2,
        ),
        "cache_control": (5, "ephemeral", {}, {"type": "eternal"}, {"type": "ephemeral", "ttl": "2h"}),
        "output_config": (5, {"effort": "much"}, {"format": {"type": "json_schema"}}, {"format": 5}),
        "max_tokens": _NO_COUNT,
        "system": _NO_CONTENT,
        "stop_sequences": (5, {}, [5], [""], ["s" * 2000], ["s"] * 100),
        "top_k": (*_NO_NUMBER, -1, 1.5),
        "thinking": (5, "on", [], {"type": "often"}, {"type": "enabled", "budget_tokens": 0}),
        "metadata": (5, "x", []),
        "diagnostics": (5, {"previous_message_id": 5}, {"previous_message_id": "m" * 300}),
        "seed": (5,),
    },
    "chat": {
        "messages": (
            *(*_NO_DIALOGUE, None, [], [_HI, {"role": "tool", "content": "hi"}]),
            *([_HI, {"role": "assistant", "tool_calls": [call]}] for call in _NO_CHAT_CALL),
        ),
        "tools": (
            *(5, {"a": 1}, [5], [{}], [{"type": "function"}], [{"type": 5}], [{"name": "f", "input_schema": {}}]),
            *([{"type": "function", "function": {"name": "f", "parameters": schema}}] for schema in _NO_SCHEMA),
            *([{"type": "function", "function": {"name": name}}] for name in (5, "", "a b", "n" * 200)),
        ),
        "parallel_tool_calls": ("yes", 1),
        "reasoning_effort": (5, "much", []),
        "max_tokens": _NO_COUNT,
        "max_completion_tokens": _NO_COUNT,
        "stop": (5, {}, [5], [""], ["s" * 2000], ["s"] * 100),
        "seed": (*_NO_NUMBER, 1.5, 2**70),
        "presence_penalty": (*_NO_NUMBER, 3, -3),
        "frequency_penalty": (*_NO_NUMBER, 3, -3),
        "response_format": (
            5,
            {},
            {"type": "json_schema"},
            {"type": "json_schema", "json_schema": {}},
            {"type": "xml"},
        ),
        "logprobs": (5, "yes"),
        "top_logprobs": (*_NO_NUMBER, 2, 21, -1),
        "stream_options": (5, [], {"include_usage": "yes"}),
        "system": ("be brief",),
    },
}
_RAW: tuple[bytes, ...] = (
    b"",
    b" ",
    b"{",
    b"[]",
    b"null",
    b"1",
    b'"text"',
    b"\xff\xfe{}",
    b"\xef\xbb\xbf{}",
    b'{"model": "simulated"} x',
    b'{"model": "\xff"}',
    b'{"model": "\xed\xa0\x80"}',
    b"[" * 100_000,
    b'{"model":' + b'{"a":' * 50_000,
    b"9" * 10_000,
)


def malformed_bodies(name: str) -> Iterator[Body]:
    """At least `N_BODIES` bodies for a dialect, the same ones each time."""
    good = body_of(name, [("user", "hi")])
    whole = json.dumps(good).encode()
    yield from map(Body, _RAW)
    for odd in ("NaN", "Infinity", "-Infinity", "1e999"):
        yield Body(whole[:-1] + f', "temperature": {odd}}}'.encode())
    yield Body(gzip.compress(whole)[:-4], {"content-encoding": "gzip"})
    yield Body(gzip.compress(whole)[:-4])
    yield Body(whole, {"content-type": "text/plain"})
    yield Body(whole, {"content-type": "application/json; charset=utf-16"})
    yield Body(whole[:-1] + b', "metadata": {"a": "' + b"y" * TOO_LARGE_BYTES + b'"}}')
    yield from (Body(whole[:cut]) for cut in range(1, len(whole), 3))
    rng = random.Random(81)
    wrong = [(key, value) for key, values in (_COMMON | _FIELDS[name]).items() for value in values]
    for key, value in wrong:
        yield _changed(good, {key: value})
    for _ in range(N_BODIES // 2):
        yield _changed(good, dict(rng.sample(wrong, 2)))


def _changed(good: Mapping[str, object], fields: Mapping[str, object]) -> Body:
    return Body(json.dumps({**good, **fields}).encode())
