from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warmlane.engine.text import TextAssembler


def feed(assembler: TextAssembler, pieces: list[bytes]) -> list[str]:
    out = []
    for piece in pieces:
        out.append(assembler.push(piece))
        if assembler.matched is not None:
            return out
    out.append(assembler.finish())
    return out


def one_byte_each(text: str) -> list[bytes]:
    return [bytes((b,)) for b in text.encode()]


def test_a_character_leaves_only_when_it_is_whole() -> None:
    assert feed(TextAssembler(), one_byte_each("a🌧é")) == ["a", "", "", "", "🌧", "", "é", ""]


def test_a_character_cut_at_the_end_is_dropped_without_a_replacement() -> None:
    assembler = TextAssembler()
    assert "".join(feed(assembler, one_byte_each("ok🌧")[:-1])) == "ok"
    assert assembler.faithful() == (2, "ok")


def test_replacement_characters_appear_only_where_bytes_are_invalid() -> None:
    assert "".join(feed(TextAssembler(), [b"a", b"\xff", b"b"])) == "a\ufffdb"
    assert "".join(feed(TextAssembler(), one_byte_each("a\ufffdb"))) == "a\ufffdb"


def test_a_stop_string_is_found_across_token_edges_and_not_delivered() -> None:
    assembler = TextAssembler(["STOP"])
    assert feed(assembler, [b"go S", b"T", b"OP on"]) == ["go ", "", ""]
    assert assembler.matched == "STOP"
    assert assembler.faithful() == (0, "")


def test_text_that_only_began_like_a_stop_string_is_delivered_later() -> None:
    assert feed(TextAssembler(["STOP"]), [b"ST", b"AR"]) == ["", "STAR", ""]


def test_a_held_tail_is_delivered_at_the_end() -> None:
    assembler = TextAssembler(["STOP"])
    assert feed(assembler, [b"x", b"STO"]) == ["x", "", "STO"]
    assert assembler.faithful() == (2, "xSTO")


@pytest.mark.parametrize(
    ("stops", "text", "delivered", "matched"),
    [
        (["b", "abc"], "xabcd", "xa", "b"),
        (["abc", "bc"], "xabcd", "x", "abc"),
        (["ab", "abc"], "xabc", "x", "ab"),
        (["aab"], "aaab", "a", "aab"),
        (["", "z"], "xyz", "xy", "z"),
        (["🌧"], "a🌧b", "a", "🌧"),
    ],
)
def test_of_overlapping_stop_strings_the_first_complete_one_wins(
    stops: list[str], text: str, delivered: str, matched: str
) -> None:
    for pieces in (one_byte_each(text), [text.encode()]):
        assembler = TextAssembler(stops)
        assert "".join(feed(assembler, pieces)) == delivered
        assert assembler.matched == matched


def test_faithful_tokens_end_where_delivered_text_ends() -> None:
    assembler = TextAssembler(["END"])
    feed(assembler, [b"one ", b"two E", b"ND"])
    assert assembler.faithful() == (1, "one ")
    empty = TextAssembler()
    feed(empty, [b"", b"a", b""])
    assert empty.faithful() == (3, "a")


@given(
    text=st.text(alphabet="abé🌧", max_size=30),
    stops=st.lists(st.text(alphabet="abé🌧", min_size=1, max_size=4), max_size=3),
    cuts=st.lists(st.integers(0, 120), max_size=8),
)
def test_token_edges_never_change_the_result(text: str, stops: list[str], cuts: list[int]) -> None:
    data = text.encode()
    edges = sorted({0, len(data), *(c for c in cuts if c < len(data))})
    pieces = [data[a:b] for a, b in itertools.pairwise(edges)]
    reference, other = TextAssembler(stops), TextAssembler(stops)
    expected = "".join(feed(reference, one_byte_each(text)))
    assert "".join(feed(other, pieces)) == expected
    assert other.matched == reference.matched
    ends = [(text.find(s) + len(s), -len(s), s) for s in stops if s in text]
    assert expected == (text[: min(ends)[0] - len(min(ends)[2])] if ends else text)
    n, faithful = other.faithful()
    assert expected.startswith(faithful)
    assert b"".join(pieces[:n]).decode() == faithful
