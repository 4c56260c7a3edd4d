"""A reply read as it comes: what is told, what counts as reasoning, where stop strings match."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warmlane.conversation.events import ReasoningDelta, TextDelta, ToolCallDelta, ToolCallStarted
from warmlane.conversation.messages import Part, Reasoning, Text, ToolCall
from warmlane.conversation.tools import TokenLogprob, Tool
from warmlane.engine.backends.bytes_vocab import CHAT_TEMPLATE
from warmlane.engine.protocol import Chunk
from warmlane.engine.text import TextAssembler
from warmlane.prompts.formats import detect_format
from warmlane.prompts.formats.base import ParsedEvent
from warmlane.turns.logprob_trail import LogprobTrail
from warmlane.turns.reader import ReplyReader

RAW = '<think>hm stop hm</think>Hello stop there <tool_call>\n{"name":"f","arguments":{"x":"stop"}}\n</tool_call>'


def reader(*, stop: Sequence[str] = (), logprobs: bool = False) -> ReplyReader:
    ids = iter("abcdef")
    parser = detect_format(CHAT_TEMPLATE).parser([Tool(name="f")], new_call_id=lambda: next(ids))
    return ReplyReader(parser, stop=stop, logprobs=logprobs)


def read(reading: ReplyReader, pieces: Sequence[str], *, logprobs: bool = False) -> list[ParsedEvent]:
    """One token a piece, until a stop string ends the reply."""
    events: list[ParsedEvent] = []
    for piece in pieces:
        tokens = (TokenLogprob(piece, -1.0, piece.encode()),) if logprobs else ()
        events += reading.feed(Chunk(piece, 1, tokens))
        if reading.stopped is not None:
            return events
    return events + reading.finish()


def text_of(events: Sequence[ParsedEvent]) -> str:
    return "".join(e.text for e in events if isinstance(e, TextDelta))


def test_without_a_parser_all_is_text_as_it_came() -> None:
    plain = ReplyReader(None)
    tokens = (TokenLogprob("<", -1.0, b"<"),)
    assert plain.feed(Chunk("<think>", 3, tokens)) == [TextDelta("<think>", tokens)]
    assert plain.feed(Chunk("", 1)) == []
    assert plain.finish() == []
    assert (plain.parts, plain.reasoning_tokens, plain.whole_calls) == ((Text("<think>"),), 0, 0)
    assert (plain.n_tokens, plain.logprobs) == (4, tokens)


@given(st.lists(st.integers(0, len(RAW)), max_size=12))
def test_what_is_told_does_not_depend_on_the_cuts(cuts: list[int]) -> None:
    bounds = [0, *sorted(cuts), len(RAW)]
    reading = reader()
    events = read(reading, [RAW[a:b] for a, b in itertools.pairwise(bounds)])
    parts = reading.parts
    assert [type(p) for p in parts][:3] == [Reasoning, Text, ToolCall]
    assert "".join(e.text for e in events if isinstance(e, ReasoningDelta)) == "hm stop hm"
    assert text_of(events).strip() == "Hello stop there"
    assert "".join(e.arguments for e in events if isinstance(e, ToolCallDelta)) == '{"x":"stop"}'
    assert [e for e in events if isinstance(e, ToolCallStarted)] == [ToolCallStarted(0, "a", "f")]
    assert reading.whole_calls == 1


@given(st.lists(st.integers(0, len(RAW)), max_size=12))
def test_a_stop_string_ends_the_text_and_is_not_looked_for_elsewhere(cuts: list[int]) -> None:
    bounds = [0, *sorted(cuts), len(RAW)]
    reading = reader(stop=["stop", "nowhere"])
    events = read(reading, [RAW[a:b] for a, b in itertools.pairwise(bounds)])
    assert reading.stopped == "stop"
    assert text_of(events) == "Hello "
    assert reading.parts == (Reasoning("hm stop hm"), Text("Hello "))


def test_a_stop_string_in_a_call_only_stops_nothing_and_loses_nothing() -> None:
    raw = 'the st<tool_call>\n{"name":"f","arguments":{"x":"stop"}}\n</tool_call>sto'
    reading = reader(stop=["stop"])
    events = read(reading, list(raw))
    assert reading.stopped is None
    assert text_of(events) == "the ststo"
    kinds = [type(p) for p in reading.parts]
    assert kinds == [Text, ToolCall, Text]


@pytest.mark.parametrize(
    ("pieces", "n"),
    [
        (["<think>", "a", "b", "</think>", "c"], 3),
        (["<th", "ink>", "a", "b", "</think>", "c"], 4),
        (["a", "b"], 0),
        (["<think>", "a", "b"], 3),
    ],
)
def test_which_tokens_count_as_reasoning(pieces: list[str], n: int) -> None:
    reading = reader()
    read(reading, pieces)
    assert reading.reasoning_tokens == n
    assert reading.n_tokens == len(pieces)


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_log_probabilities_go_with_the_text_they_are_of(size: int) -> None:
    pieces = [RAW[i : i + size] for i in range(0, len(RAW), size)]
    reading = reader(logprobs=True)
    events = read(reading, pieces, logprobs=True)
    told = "".join(t.token for t in reading.logprobs)
    assert reading.logprobs == tuple(t for e in events if isinstance(e, TextDelta) for t in e.logprobs)
    assert "Hello stop there" in told
    if size == 1:
        assert told.strip() == "Hello stop there"


def test_a_token_is_given_out_once() -> None:
    trail = LogprobTrail()
    tokens = [TokenLogprob(t, -1.0, t.encode()) for t in ("<x>", "héllo", " wörld")]
    trail.add(tokens)
    assert trail.take("") == ()
    assert trail.take("hé") == (tokens[1],)
    assert trail.take("llo") == ()
    assert trail.take(" wörld") == (tokens[2],)
    assert trail.take("never said") == ()
    trail.add([TokenLogprob("ab", -1.0, b"ab")])
    trail.skip("a")
    assert [t.token for t in trail.take("b")] == ["ab"]


@pytest.mark.parametrize(
    ("pieces", "told", "expected"),
    [
        ([b"\xe6\x9d", b"\xb1", b"a"], ["東", "a"], [[0, 1], [2]]),
        ([b"x\xe6", b"\x9d", b"\xb1y"], ["x", "東", "y"], [[0], [1, 2], []]),
        ([b"\xff", b"\xe6\x9d", b"a"], ["\ufffd", "\ufffd", "a"], [[0], [1], [2]]),
        ([b"<x>", b"", b"a", b""], ["a"], [[2]]),
        ([b"\xc2", b"", b"\x80"], ["\x80"], [[0, 1, 2]]),
    ],
)
def test_tokens_that_are_parts_of_characters_or_of_none_go_with_what_is_told_of_them(
    pieces: list[bytes], told: list[str], expected: list[list[int]]
) -> None:
    trail = LogprobTrail()
    tokens = [TokenLogprob(str(i), -1.0, piece) for i, piece in enumerate(pieces)]
    trail.add(tokens)
    assert [[int(t.token) for t in trail.take(text)] for text in told] == expected


@given(pieces=st.lists(st.binary(max_size=4), max_size=30), cuts=st.lists(st.integers(0, 9), max_size=30))
def test_whatever_bytes_a_model_writes_every_token_with_text_is_given_out_once(
    pieces: list[bytes], cuts: list[int]
) -> None:
    """Bytes at the end that begin a character and do not end it are no text."""
    trail, assembler = LogprobTrail(), TextAssembler()
    given_out: list[str] = []
    for i, piece in enumerate(pieces):
        trail.add([TokenLogprob(str(i), -1.0, piece)])
        text = assembler.push(piece)
        cut = cuts[i] if i < len(cuts) else len(text)
        given_out += [t.token for part in (text[:cut], text[cut:]) for t in trail.take(part)]
    assert given_out == sorted(set(given_out), key=int)
    n_whole = assembler.n_whole
    assert {str(i) for i, piece in enumerate(pieces[:n_whole]) if piece} <= set(given_out)


def test_parts_are_told_in_order() -> None:
    raw = (
        '<tool_call>\n{"name":"f","arguments":{}}\n</tool_call>\n<tool_call>\n{"name":"f","arguments":{}}\n</tool_call>'
    )
    reading = reader()
    read(reading, list(raw))
    calls: list[Part] = [p for p in reading.parts if isinstance(p, ToolCall)]
    assert calls == [ToolCall("a", "f", "{}"), ToolCall("b", "f", "{}")]
