"""Headers that repeat what a client has named, whatever it is."""

from __future__ import annotations

import re
from urllib.parse import unquote

from hypothesis import given
from hypothesis import strategies as st

from warmlane.api.headers import WARNINGS_MAX_BYTES, warning_headers

# RFC 9110: visible characters, with spaces between them alone.
FIELD_VALUE = re.compile(rb"[!-~]+(?: +[!-~]+)*")


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=30) | st.sampled_from(["", " ", "  a b  "]), min_size=1))
def test_any_names_make_a_legal_value_that_tells_them(names: list[str]) -> None:
    ((_, value),) = warning_headers(names)
    assert FIELD_VALUE.fullmatch(value)
    assert len(value) <= WARNINGS_MAX_BYTES
    told = value.decode().split(", ")
    rest = int(told.pop()[1:]) if re.fullmatch(r"\+\d+", told[-1]) else 0
    unique = list(dict.fromkeys(names))
    assert [unquote(name) for name in told] == [name or '""' for name in unique[: len(told)]]
    assert len(told) + rest == len(unique)


def test_no_names_need_no_header() -> None:
    assert warning_headers([]) == []
