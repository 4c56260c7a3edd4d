"""Cuts of replies, as in the unit tests, many times over."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.markup import OPENINGS, REPLIES, TOOLS
from support.replies import told
from warmlane.prompts.formats import format_named, format_names


@pytest.mark.parametrize("name", format_names())
@settings(max_examples=5000, deadline=None)
@given(reply=REPLIES, at=st.floats(0, 1), opening=st.sampled_from(OPENINGS), whole_calls=st.booleans())
def test_cuts_do_not_matter(name: str, reply: str, at: float, opening: str, whole_calls: bool) -> None:
    form, cut = format_named(name), int(at * len(reply))
    at_once = told(form, [reply], TOOLS, opening=opening, whole_calls=whole_calls)
    for pieces in ([reply[:cut], reply[cut:]], list(reply)):
        assert told(form, pieces, TOOLS, opening=opening, whole_calls=whole_calls) == at_once
