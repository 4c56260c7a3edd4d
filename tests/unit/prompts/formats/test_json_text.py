from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warmlane.prompts.formats.json_text import MAX_DEPTH, JsonText

_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=10,
)


def _follow(text: str, size: int) -> tuple[str, int, bool, bool]:
    value, at, enough = JsonText(), 0, False
    while at < len(text) and not enough:
        piece = text[at : at + size]
        stop, enough = value.feed(piece, 0)
        at += stop
    return value.drain(), at, value.done, value.failed


@settings(max_examples=40, deadline=None)
@given(
    value=st.lists(_values) | st.dictionaries(st.text(), _values),
    ascii_only=st.booleans(),
    indent=st.none() | st.just(2),
    size=st.integers(1, 9),
    behind=st.text(max_size=4),
)
def test_json_is_followed_to_its_end(
    value: object, ascii_only: bool, indent: int | None, size: int, behind: str
) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    assert _follow(text + behind, size) == (text, len(text), True, False)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ('["a\tb\x00"]', ["a\tb\x00"]),
        (r'["\d \( \' \u12"]', [r"\d \( ' \u12".replace("'", "\\'")]),
        ("[True, False, None]", [True, False, None]),
        ('["\\ud83c\\udf38"]', ["🌸"]),
    ],
)
def test_what_is_mended(written: str, meant: object) -> None:
    for size in (1, 100):
        out, at, done, _ = _follow(written, size)
        assert done
        assert at == len(written)
        assert json.loads(out) == meant


@pytest.mark.parametrize(
    "written",
    ["{,", '{"a" 1}', '{"a": }', "[1 2]", "[1,]", '{"a": 1,}', "[nope]", "[01]", "[-]", "[1.]", "<", "[NaN]", "'a'"],
)
def test_what_is_no_json_fails_at_the_same_place(written: str) -> None:
    out, at, done, failed = _follow(written, 1)
    assert failed
    assert not done
    assert (out, at, done, failed) == _follow(written, 100)


def test_depth_is_bounded() -> None:
    assert _follow("[" * MAX_DEPTH + "]" * MAX_DEPTH, 7)[2]
    assert _follow("[" * (MAX_DEPTH + 1), 7)[3]
