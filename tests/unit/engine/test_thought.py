"""Reasoning that is bounded: where it ends, what comes then, and what is left alone."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unit.engine.harness import Bench, bench, chat
from warmlane.engine.protocol import EndReason, SamplingParams, ThoughtLimit
from warmlane.engine.thought import ThoughtWatch

ENDING = "\n</think>\n\n"
OPENS, CLOSES = ("<think>", "[THINK]"), ("</think>", "<call>")


def limit(max_tokens: int, *, inside: bool = False) -> ThoughtLimit:
    """For the simulated engine, whose tokens are bytes."""
    return ThoughtLimit(max_tokens=max_tokens, opens=OPENS, closes=CLOSES, ending=tuple(ENDING.encode()), inside=inside)


def said(message: str, max_tokens: int, **options: object) -> tuple[Bench, int, str]:
    b = bench()
    turn = b.ask(chat(("user", message)), special_text=True, thought=limit(max_tokens), **options)
    return b, turn, b.text(turn)


def test_a_thought_ends_when_its_tokens_are_spent_and_the_answer_goes_on() -> None:
    b, turn, text = said("THINK:a long thought\nEMIT:the answer", 6)
    assert text == f"<think>a long{ENDING}the answer"
    ended = b.ended(turn)
    assert (ended.reason, ended.token_text) == (EndReason.STOP, text)
    assert bytes(ended.token_ids).decode() == text


@pytest.mark.parametrize("max_tokens", [15, 1000])
def test_a_thought_that_keeps_within_its_bound_is_left_alone(max_tokens: int) -> None:
    assert said("THINK:a long thought\nEMIT:the answer", max_tokens)[2] == "<think>a long thought</think>the answer"


def test_what_only_looks_like_a_thought_is_not_bounded() -> None:
    for text in ("EMIT:no thought <think> at all", "EMIT:<thin air is not bounded", "EMIT:[THIN king]"):
        assert said(text, 1)[2] == text.removeprefix("EMIT:")


def test_a_thought_is_not_ended_inside_a_character() -> None:
    for max_tokens, kept in ((1, "ü"), (2, "ü"), (3, "ü🌧"), (6, "ü🌧")):
        text = said("THINK:ü🌧 and more\nEMIT:so", max_tokens)[2]
        assert text == f"<think>{kept}{ENDING}so"


def test_a_bound_holds_under_a_grammar_too() -> None:
    grammar = 'start: "<think>" u1 /[ \\n]{0,8}/ "{}"\nu1[suffix="</think>"]: ANY\nANY: /(?s:.*)/\n'
    text = said("THINK:a long thought\nEMIT:the answer", 6, grammar=grammar)[2]
    assert text == f"<think>a long{ENDING}{{}}"


def test_where_a_grammar_forbids_the_ending_the_bound_gives_way() -> None:
    grammar = 'start: "<think>" /[a-z ]{20}/ "</think>"\n'
    text = said("THINK:a long thought here now\nEMIT:x", 6, grammar=grammar)[2]
    assert text == "<think>a long thought here </think>"


def test_a_bounded_turn_that_starts_over_says_the_same() -> None:
    """Cells run out in the middle of what is forced."""
    alone = bench(hash_mode=True)
    options = {"special_text": True, "thought": limit(20, inside=True), "max_tokens": 60}
    warm = SamplingParams(temperature=1.0, seed=4)
    expected = alone.text(alone.ask("x" * 30, sampling=warm, **options))  # type: ignore[arg-type]
    assert ENDING in expected
    b = bench(hash_mode=True, n_cells=130)
    b.submit("y" * 30, max_tokens=60)
    turn = b.submit("x" * 30, sampling=warm, **options)  # type: ignore[arg-type]
    b.run()
    assert b.text(turn) == expected
    assert b.scheduler.stats().preemptions


def watched(pieces: Iterable[str], max_tokens: int, *, inside: bool = False) -> str:
    """What becomes of these tokens, each a piece of text, when one of the ending is a character."""
    watch, text, rest = ThoughtWatch(limit(max_tokens, inside=inside)), "", list(pieces)
    while rest or watch.forced() is not None:
        forced = watch.forced()
        if forced is not None:
            piece, token = chr(forced), forced
        else:
            piece, token = rest.pop(0), -1
        text += piece
        watch.saw(token, piece.encode(), whole=True)
    return text


@given(data=st.data(), max_tokens=st.integers(0, 12))
def test_what_is_bounded_does_not_depend_on_where_marks_are_cut(data: st.DataObject, max_tokens: int) -> None:
    thought = data.draw(st.sampled_from(("", "abc", "a < b", "</thin", "x" * 30)))
    raw = f" <think>{thought}</think>\n the <think> rest"
    cuts = sorted({0, len(raw), *data.draw(st.lists(st.integers(0, len(raw))))})
    pieces = [raw[a:b] for a, b in itertools.pairwise(cuts)]
    text = watched(pieces, max_tokens)
    assert text.replace(ENDING, "", 1) == raw
    assert text.count(ENDING) <= 1
    if max_tokens > len(thought) + len("</think>"):
        assert text == raw


def test_each_thought_counts_and_one_behind_a_spent_bound_ends_at_once() -> None:
    assert watched("<think>abc</think><think>defgh</think>so", 11 + 2).startswith(
        f"<think>abc</think><think>de{ENDING}"
    )
    assert watched("<think>abcdefgh", 3) == f"<think>abc{ENDING}defgh"
    again = watched(("<think>", "abc", "def", "<think>", "x", "y"), 2)
    assert again == f"<think>abcdef{ENDING}<think>{ENDING}xy"
