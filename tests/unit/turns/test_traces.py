"""Why a turn reused less than it could."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.spine import Rig, rig, said, user
from warmlane.conversation.tools import Tool
from warmlane.conversation.turn import Dialect, Divergence, DivergenceCause
from warmlane.turns.traces import EXCERPT_CHARS, Trace, TraceLog, tools_digest

A, B = b"a" * 16, b"b" * 16


def trace(text: str, *, model: str = "m", instructions: str | None = None, tools: bytes = b"") -> Trace:
    return Trace(model, instructions, np.frombuffer(text.encode(), np.uint8).astype(np.int32), text, tools)


def compared(before: Trace, now: Trace) -> Divergence | None:
    log = TraceLog()
    log.remember(A, "r", before)
    return log.compare(A, "r", now)


@pytest.mark.parametrize("now", ["hello", "hello, more", "hel"])
def test_a_prompt_that_extends_the_other_or_is_part_of_it_did_not_diverge(now: str) -> None:
    assert compared(trace("hello"), trace(now)) is None


def test_the_token_and_both_texts_are_told() -> None:
    found = compared(trace("x" * 100 + "old tail"), trace("x" * 100 + "new tail and more"))
    assert found == Divergence(
        cause=DivergenceCause.MESSAGES_CHANGED,
        offset=100,
        missed_tokens=8,
        before="x" * EXCERPT_CHARS + "old tail",
        now="x" * EXCERPT_CHARS + "new tail and more",
    )


def test_a_changed_tool_is_named_also_where_only_the_order_changed() -> None:
    one, two = Tool(name="one"), Tool(name="two")
    before = trace("one", tools=tools_digest([one, two]))
    now = compared(before, trace("two", tools=tools_digest([two, one])))
    assert now is not None
    assert now.cause is DivergenceCause.TOOLS_CHANGED
    same = compared(before, trace("two", tools=tools_digest([one, two])))
    assert same is not None
    assert same.cause is DivergenceCause.MESSAGES_CHANGED


def test_model_then_system_then_messages() -> None:
    before = trace("one", instructions="a")
    model, system = (compared(before, trace("two", model=m, instructions="b")) for m in ("n", "m"))
    assert model is not None
    assert (model.cause, model.offset, model.missed_tokens) == (DivergenceCause.MODEL_CHANGED, 0, 3)
    assert system is not None
    assert system.cause is DivergenceCause.SYSTEM_CHANGED


def test_another_domain_and_an_unknown_id_are_not_found() -> None:
    log = TraceLog()
    log.remember(A, "r", trace("hello"))
    for domain, response_id in ((B, "r"), (A, "s")):
        assert log.compare(domain, response_id, trace("hello")) == Divergence(cause=DivergenceCause.NOT_FOUND)


def test_traces_are_bounded_and_the_oldest_go_first() -> None:
    log = TraceLog(max_tokens=10)
    for name in "abc":
        log.remember(A, name, trace("12345"))
    log.remember(A, "long", trace("1" * 11))
    found = {name: log.compare(A, name, trace("12345")) is None for name in ("a", "b", "c", "long")}
    assert found == {"a": False, "b": True, "c": True, "long": False}


@pytest.mark.parametrize(
    ("asked", "known"), [("abcdef", 6), ("abcdxx", 4), ("abc", 3), ("abcdefgh", 6), ("abzzzzzz", 2), ("x", 0)]
)
def test_a_prompt_is_known_as_far_as_a_turn_of_its_domain_and_model_went(asked: str, known: int) -> None:
    log = TraceLog()
    log.remember(A, "r", trace("abcdef"))
    assert log.known(A, trace(asked)) == known
    assert log.known(B, trace(asked)) == 0
    assert log.known(A, trace(asked, model="n")) == 0
    assert log.known(A, trace("")) == 0
    log.forget(["r"])
    assert log.known(A, trace(asked)) == 0


texts = st.text(alphabet="ab\x00", max_size=9)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("remember"), st.sampled_from((A, B)), st.sampled_from("rst"), texts, st.sampled_from("mn")),
        st.tuples(st.just("forget"), st.sampled_from("rst")),
        st.tuples(st.just("forget_domain"), st.sampled_from((A, B))),
    ),
    max_size=30,
)


@given(steps=steps, asked=texts)
def test_what_is_known_is_what_a_look_at_every_trace_finds(steps: list[tuple[Any, ...]], asked: str) -> None:
    log = TraceLog(max_tokens=20)
    kept: dict[tuple[bytes, str], Trace] = {}
    for name, *given_ in steps:
        match name:
            case "remember":
                domain, response_id, text, model = given_
                kept.pop((domain, response_id), None)
                kept[domain, response_id] = trace(text, model=model)
                log.remember(domain, response_id, kept[domain, response_id])
                while sum(len(t.text) for t in kept.values()) > 20:
                    del kept[next(iter(kept))]
            case "forget":
                log.forget(given_)
                kept = {key: t for key, t in kept.items() if key[1] != given_[0]}
            case _:
                log.forget_domain(given_[0])
                kept = {key: t for key, t in kept.items() if key[0] != given_[0]}
    for domain in (A, B):
        for model in "mn":
            mine = [t.text for key, t in kept.items() if key[0] == domain and t.model == model]
            beginnings = itertools.accumulate(asked)
            known = sum(any(text.startswith(beginning) for text in mine) for beginning in beginnings)
            assert log.known(domain, trace(asked, model=model)) == known


@pytest.fixture
async def spine() -> AsyncIterator[Rig]:
    async with rig() as made:
        yield made


async def test_a_turn_that_rewrites_history_says_where(spine: Rig) -> None:
    first = spine.ask("hello there", dialect=Dialect.MESSAGES, store=False)
    one = await spine.finished(first)
    kept = (user("hello there"), said(one.message.text), user("more"))
    changed = (user("hello again"), said(one.message.text), user("more"))
    asked = {"dialect": Dialect.MESSAGES, "store": False, "compare_to": first.response_id}
    assert (await spine.finished(spine.ask(kept, **asked))).cache.divergence is None
    divergence = (await spine.finished(spine.ask(changed, **asked))).cache.divergence
    assert divergence is not None
    assert divergence.cause is DivergenceCause.MESSAGES_CHANGED
    assert "there" in divergence.before
    assert "again" in divergence.now


async def test_changed_instructions_in_a_chain_are_told(spine: Rig) -> None:
    first = spine.ask("hello", instructions="be brief")
    await spine.finished(first)
    chained = {"previous_response_id": first.response_id}
    kept = await spine.finished(spine.ask("more", instructions="be brief", **chained))
    assert kept.cache.divergence is None
    changed = await spine.finished(spine.ask("more", instructions="be kind", **chained))
    assert changed.cache.divergence is not None
    assert changed.cache.divergence.cause is DivergenceCause.SYSTEM_CHANGED


async def test_nothing_asked_nothing_told(spine: Rig) -> None:
    assert (await spine.finished(spine.ask("hello"))).cache.divergence is None


async def test_a_response_deleted_while_it_runs_is_stopped_and_leaves_no_row(spine: Rig) -> None:
    request = spine.ask("SLOW:20 " + "x" * 100)
    stream = spine.start(request)
    await anext(stream)
    await spine.spine.delete(request.response_id, "")
    events = [event async for event in stream]
    stream.close()
    await spine.idle()
    assert type(events[-1]).__name__ == "Failed"
    assert await spine.store.get(request.response_id, "", now=0.0) is None
    assert len(spine.registry) == 0


async def test_a_turn_that_names_none_says_where_it_left_what_is_cached(spine: Rig) -> None:
    asked = {"dialect": Dialect.CHAT, "store": False}
    await spine.finished(spine.ask("x" * 50 + " the old way", **asked))
    left = (await spine.finished(spine.ask("x" * 50 + " the new way", **asked))).cache.divergence
    assert left is not None
    assert left.cause is DivergenceCause.PREFIX_LEFT
    assert (left.before[:3], left.now[:3]) == ("old", "new")
    other = spine.ask("x" * 50 + " the third way", **asked, domain=spine.spine.domain("", "salt"))
    assert (await spine.finished(other)).cache.divergence is None


async def test_excerpts_are_not_stored_and_a_deleted_turn_is_not_shown(spine: Rig) -> None:
    first = spine.ask("hello there", instructions="a secret plan")
    await spine.finished(first)
    changed = spine.ask("more", instructions="be kind", compare_to=first.response_id)
    assert "secret" in str((await spine.finished(changed)).cache.divergence)
    row = await spine.store.get(changed.response_id, "", now=0.0)
    assert row is not None
    kept = row.outcome.cache.divergence
    assert kept is not None
    assert (kept.cause, kept.before, kept.now) == (DivergenceCause.SYSTEM_CHANGED, "", "")
    await spine.spine.delete(first.response_id, "")
    again = await spine.finished(spine.ask("more", instructions="be kind", compare_to=first.response_id))
    assert again.cache.divergence == Divergence(cause=DivergenceCause.NOT_FOUND)
