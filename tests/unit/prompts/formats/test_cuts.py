"""What a reply says does not depend on where its stream was cut, whatever it says."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.markup import MARKUP, OPENINGS, REPLIES, TOOLS
from support.replies import told
from warmlane.prompts.formats import format_named, format_names


@pytest.mark.parametrize("name", format_names())
@settings(max_examples=30, deadline=None)
@given(
    reply=REPLIES,
    cuts=st.lists(st.integers(0, 400), max_size=12),
    opening=st.sampled_from(OPENINGS),
    with_tools=st.booleans(),
    whole_calls=st.booleans(),
)
def test_cuts_do_not_matter(
    name: str, reply: str, cuts: list[int], opening: str, with_tools: bool, whole_calls: bool
) -> None:
    form, tools = format_named(name), TOOLS if with_tools else ()
    at_once = told(form, [reply], tools, opening=opening, whole_calls=whole_calls)
    edges = [0, *sorted(cut for cut in cuts if cut < len(reply)), len(reply)]
    pieces = [reply[a:b] for a, b in pairwise(edges)]
    assert told(form, pieces, tools, opening=opening, whole_calls=whole_calls) == at_once
    assert told(form, reply, tools, opening=opening, whole_calls=whole_calls) == at_once


@pytest.mark.parametrize("name", format_names())
@settings(max_examples=15, deadline=None)
@given(reply=REPLIES)
def test_whole_calls_are_those_told_as_they_come(name: str, reply: str) -> None:
    streamed = told(format_named(name), [reply], TOOLS)
    whole = told(format_named(name), [reply], TOOLS, whole_calls=True)
    assert not whole.incomplete
    assert whole.truncated == streamed.truncated
    assert [call[1:] for call in whole.calls] == [call[1:] for call in streamed.whole]
    if not streamed.incomplete:
        assert replace(whole, calls=(), parts=()) == replace(streamed, calls=(), parts=())


@pytest.mark.parametrize("name", format_names())
@settings(max_examples=15, deadline=None)
@given(reply=st.lists(st.sampled_from([m for m in MARKUP if m.strip(" \n\t")]), min_size=1, max_size=10).map("".join))
def test_what_was_said_is_never_lost_altogether(name: str, reply: str) -> None:
    """A reply tells something, ends inside a call, or is made of nothing but markup."""
    reply += " said "
    heard = told(format_named(name), [reply], TOOLS)
    assert heard.parts or heard.truncated
