"""What replies are held to, judged by llguidance's own matcher over a vocabulary of bytes."""

from __future__ import annotations

import json
import random
from functools import cache

import jsonschema
import pytest
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

from support.replies import told
from warmlane.conversation.messages import Part, Reasoning, Text, ToolCall
from warmlane.conversation.tools import TextFormat, Tool, ToolChoice, ToolMode
from warmlane.errors import InvalidRequest
from warmlane.prompts.formats import format_named, format_names
from warmlane.prompts.formats.families import Family
from warmlane.prompts.formats.render import written_reply

_END = 256


class _Bytes:
    """A vocabulary of bytes, as llguidance wants it."""

    eos_token_id = _END
    bos_token_id = None
    tokens = (*(bytes([i]) for i in range(256)), b"<end>")
    special_token_ids = (_END,)

    def __call__(self, text: bytes | str) -> list[int]:
        return list(text.encode() if isinstance(text, str) else text)


@cache
def _tokenizer() -> LLTokenizer:
    return LLTokenizer(TokenizerWrapper(_Bytes()), eos_token=[_END])


def _matcher(grammar: str) -> LLMatcher:
    matcher = LLMatcher(_tokenizer(), LLMatcher.grammar_from_lark(grammar), log_level=0)
    assert not matcher.is_error(), matcher.get_error()
    return matcher


def _accepts(grammar: str | None, reply: str) -> bool:
    assert grammar is not None
    matcher = _matcher(grammar)
    data = list(reply.encode())
    return matcher.try_consume_tokens(data) == len(data) and matcher.is_accepting()


def _tool(name: str, properties: dict[str, object], required: list[str], *, strict: bool = False) -> Tool:
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return Tool(name=name, parameters=json.dumps(schema), strict=strict)


_GET = _tool(
    "get",
    {
        "city": {"type": "string"},
        "unit": {"enum": ["c", "f"]},
        "n": {"type": "integer"},
        "opts": {"type": "object", "properties": {"a": {"type": "boolean"}}, "additionalProperties": False},
    },
    ["city"],
)
_NOW = _tool("now", {}, [])
_TOOLS = (_GET, _NOW)
_STRICT = tuple(Tool(name=t.name, parameters=t.parameters, strict=True) for t in _TOOLS)

_CALL = ToolCall("", "get", '{"city": "Paris, France", "unit": "c", "n": 3, "opts": {"a": true}}')
_SHORT = ToolCall("", "get", '{"city": "Oslo"}')
_EMPTY = ToolCall("", "now", "{}")
_UNKNOWN = ToolCall("", "rm", '{"city": "Oslo"}')
_WRONG = (
    ToolCall("", "get", '{"city": "Oslo", "n": "three"}'),
    ToolCall("", "get", '{"city": "Oslo", "unit": "k"}'),
    ToolCall("", "get", '{"n": 3}'),
    ToolCall("", "now", '{"x": 1}'),
)

_REQUIRED = ToolChoice(mode=ToolMode.REQUIRED)
_NONE = ToolChoice(mode=ToolMode.NONE)
_ONE_AT_MOST = ToolChoice(parallel=False)


def _family(name: str) -> Family:
    family = format_named(name)
    assert isinstance(family, Family)
    return family


def _written(name: str, *parts: Part, inside: bool = False) -> str:
    return written_reply(_family(name).writing, parts, inside=inside)


def _thoughtful(name: str) -> list[tuple[Part, ...]]:
    return [(), (Reasoning("hm, <x> and {y}"),)] if _family(name).writing.thought else [()]


@pytest.mark.parametrize("name", format_names())
def test_a_required_call_is_a_call_of_an_offered_tool_with_fitting_arguments(name: str) -> None:
    form = format_named(name)
    grammar = form.grammar(_TOOLS, _REQUIRED, None)
    for thought in _thoughtful(name):
        for call in (_CALL, _SHORT, _EMPTY):
            assert _accepts(grammar, _written(name, *thought, call)), call
        for call in (_UNKNOWN, *_WRONG):
            assert not _accepts(grammar, _written(name, *thought, call)), call
        assert not _accepts(grammar, _written(name, *thought, Text("Certainly!")))
    assert not _accepts(grammar, "")


@pytest.mark.parametrize("name", [n for n in format_names() if n != "gpt-oss"])
def test_calls_made_together_unless_it_has_to_be_one(name: str) -> None:
    form, two = format_named(name), _written(name, _SHORT, _EMPTY)
    assert _accepts(form.grammar(_TOOLS, _REQUIRED, None), two)
    assert not _accepts(form.grammar(_TOOLS, ToolChoice(mode=ToolMode.REQUIRED, parallel=False), None), two)
    assert _accepts(form.grammar(_STRICT, ToolChoice(), None), two)
    one = form.grammar(_TOOLS, _ONE_AT_MOST, None)
    assert not _accepts(one, two) or _family(name).writing.alone
    assert _accepts(one, _written(name, _SHORT))
    assert _accepts(one, _written(name, Text("No call.")))


@pytest.mark.parametrize("name", format_names())
def test_a_named_tool_is_the_one_called(name: str) -> None:
    grammar = format_named(name).grammar(_TOOLS, ToolChoice(mode=ToolMode.REQUIRED, allowed=("now",)), None)
    assert _accepts(grammar, _written(name, _EMPTY))
    assert not _accepts(grammar, _written(name, _SHORT))


@pytest.mark.parametrize("name", format_names())
def test_only_allowed_tools_are_called_if_any(name: str) -> None:
    grammar = format_named(name).grammar(_TOOLS, ToolChoice(allowed=("now",)), None)
    assert _accepts(grammar, _written(name, _EMPTY))
    assert _accepts(grammar, _written(name, Text("Well.")))
    if not _family(name).writing.alone:
        assert not _accepts(grammar, _written(name, _SHORT))


@pytest.mark.parametrize("name", format_names())
def test_strict_tools_hold_calls_and_leave_text_alone(name: str) -> None:
    form = format_named(name)
    assert form.grammar(_TOOLS, ToolChoice(), None) is None
    grammar = form.grammar(_STRICT, ToolChoice(), None)
    alone = _family(name).writing.alone
    for thought in _thoughtful(name):
        assert _accepts(grammar, _written(name, *thought, Text("Just text: 1 < 2, [a], {b} and <p>.")))
        assert _accepts(grammar, _written(name, *thought, _CALL))
        assert alone or _accepts(grammar, _written(name, *thought, Text("Wait."), _SHORT))
        for call in (_UNKNOWN, *_WRONG):
            assert not _accepts(grammar, _written(name, *thought, call)), call


@pytest.mark.parametrize("name", format_names())
def test_no_call_where_none_may_be_made(name: str) -> None:
    form = format_named(name)
    assert form.grammar((), _NONE, None) is None
    grammar = form.grammar(_TOOLS, _NONE, None)
    assert _accepts(grammar, _written(name, Text("No call.")))
    if not _family(name).writing.alone:
        assert not _accepts(grammar, _written(name, _SHORT))


@pytest.mark.parametrize("name", format_names())
def test_text_that_is_json_behind_any_thought(name: str) -> None:
    form = format_named(name)
    schema = (
        '{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": false}'
    )
    anything, fitting = (
        form.grammar((), ToolChoice(), TextFormat()),
        form.grammar((), ToolChoice(), TextFormat(schema=schema)),
    )
    for thought in _thoughtful(name):
        good, other = (_written(name, *thought, Text(text)) for text in ('{"a": 1}', '{"b": [null]}'))
        assert _accepts(anything, good)
        assert _accepts(anything, other)
        assert _accepts(fitting, good)
        assert not _accepts(fitting, other)
        assert not _accepts(anything, _written(name, *thought, Text("Here you are: {}")))
        assert not _accepts(anything, _written(name, *thought, Text('{"a": 1')))


@pytest.mark.parametrize("name", format_names())
def test_json_or_a_call_where_both_are_offered(name: str) -> None:
    grammar = format_named(name).grammar(_TOOLS, ToolChoice(), TextFormat(schema='{"type": "array"}'))
    assert _accepts(grammar, _written(name, Text("[1]")))
    assert _accepts(grammar, _written(name, _SHORT))
    assert not _accepts(grammar, _written(name, Text("hello")))


@pytest.mark.parametrize(
    "name", [n for n in format_names() if n not in ("plain", "llama", "llama-pythonic", "mistral-v3")]
)
def test_a_thought_that_the_prompt_opened_comes_first(name: str) -> None:
    writing = _family(name).writing
    assert writing.thought is not None
    grammar = format_named(name).grammar(_TOOLS, _REQUIRED, None, opening=f"<|assistant|>{writing.thought[0]}")
    assert _accepts(grammar, _written(name, Reasoning("hm"), _SHORT, inside=True))
    assert not _accepts(grammar, _written(name, _SHORT))


def test_a_prompt_that_opened_the_text() -> None:
    form, opening = format_named("kimi-k3"), '<|open|>message role="assistant"<|sep|><|open|>response<|sep|>'
    json_only = form.grammar((), ToolChoice(), TextFormat(), opening=opening)
    assert _accepts(json_only, '{"a": 1}<|close|>response<|sep|><|close|>message<|sep|>')
    required = form.grammar(_TOOLS, _REQUIRED, None, opening=opening)
    _, _, calls = _written("kimi-k3", _EMPTY).partition("<|close|>response<|sep|>")
    assert _accepts(required, "<|close|>response<|sep|>" + calls)


def test_a_required_call_of_no_tool_is_refused() -> None:
    for choice in (_REQUIRED, ToolChoice(mode=ToolMode.REQUIRED, allowed=())):
        with pytest.raises(InvalidRequest) as refused:
            format_named("hermes").grammar(() if choice is _REQUIRED else _TOOLS, choice, None)
        assert refused.value.param == "tool_choice"


def test_a_schema_that_is_none_is_refused_and_a_strange_one_is_not() -> None:
    form = format_named("hermes")
    with pytest.raises(InvalidRequest, match="not a JSON object"):
        form.grammar((), ToolChoice(), TextFormat(schema="[]"))
    strange = {"type": "object", "properties": {"a": {"type": "string", "pattern": "(?<=x)y"}}, "required": ["a"]}
    grammar = form.grammar((Tool(name="get", parameters=json.dumps(strange)),), _REQUIRED, None)
    assert _accepts(grammar, _written("hermes", ToolCall("", "get", '{"a": "z"}')))


_DRAWN = _tool(
    "draw",
    {
        "kind": {"enum": ["a", "b"]},
        "n": {"type": "integer"},
        "on": {"type": ["boolean", "null"]},
        "sizes": {"type": "array", "items": {"type": "integer"}},
        "at": {"$ref": "#/$defs/point"},
    },
    ["n", "at"],
)
_POINT = {
    "type": "object",
    "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}},
    "required": ["x"],
    "additionalProperties": False,
}
_DRAW = Tool(name="draw", parameters=json.dumps({**json.loads(_DRAWN.parameters), "$defs": {"point": _POINT}}))


_DULL = frozenset(b" \t\r\n") | {_END}
_DIGITS = frozenset(b"0123456789")


def _drawn(grammar: str, start: str, chance: random.Random) -> str | None:
    """A reply that the grammar allows, drawn byte by byte behind `start`; None if it does not end."""
    matcher, reply = _matcher(grammar), start.encode()
    assert matcher.consume_tokens(list(reply))
    for _ in range(500):
        allowed = [i for i, on in enumerate(matcher.compute_logit_bias()) if on]
        if allowed == [_END] or (_END in allowed and chance.random() < 0.5):
            return reply.decode()
        lively = [i for i in allowed if i not in _DULL and (i not in _DIGITS or chance.random() < 0.3)]
        byte = chance.choice(lively or [i for i in allowed if i != _END])
        assert matcher.consume_token(byte)
        reply += bytes([byte])
    return None


@pytest.mark.parametrize("name", format_names())
def test_what_is_allowed_is_read_as_what_was_asked_for(name: str) -> None:
    form, writing, chance = format_named(name), _family(name).writing, random.Random(name)
    grammar = form.grammar((_DRAW,), ToolChoice(mode=ToolMode.REQUIRED, parallel=False), None)
    assert grammar is not None
    start = writing.begin + writing.open
    replies = [reply for _ in range(6) if (reply := _drawn(grammar, start, chance)) is not None]
    assert len(replies) >= 2
    for reply in replies:
        heard = told(form, [reply], (_DRAW,))
        [(called, arguments)] = heard.named
        assert called == "draw"
        jsonschema.validate(arguments, json.loads(_DRAW.parameters))
        assert heard.text == ""
