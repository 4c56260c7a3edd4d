"""Of several reasons why little is cached, the one that is told."""

from __future__ import annotations

import numpy as np
import pytest

from warmlane.conversation.turn import Dialect, Divergence, DivergenceCause, TurnRequest
from warmlane.engine import protocol
from warmlane.engine.protocol import Placed
from warmlane.turns.diagnosis import EVICTED_TOKENS, Diagnosis, diagnose
from warmlane.turns.traces import Trace, TraceLog

DOMAIN = b"d" * 16
LEFT = protocol.Divergence(10, 70, "old", "new")
CHANGED = Divergence(cause=DivergenceCause.MESSAGES_CHANGED, offset=10, missed_tokens=60)


def trace(text: str) -> Trace:
    return Trace("m", None, np.frombuffer(text.encode(), np.uint8).astype(np.int32), text)


def request(**fields: str) -> TurnRequest:
    return TurnRequest(
        request_id="req",
        response_id="resp",
        dialect=Dialect.CHAT,
        tenant="",
        domain=DOMAIN,
        model="m",
        input=(),
        compare_to=fields.get("compare_to"),
    )


@pytest.mark.parametrize(
    ("diagnosis", "cause"),
    [
        (Diagnosis(), DivergenceCause.PREFIX_LEFT),
        (Diagnosis(compared=True), None),
        (Diagnosis(known=10 + EVICTED_TOKENS), DivergenceCause.PREFIX_LEFT),
        (Diagnosis(known=11 + EVICTED_TOKENS), DivergenceCause.EVICTED),
        (Diagnosis(compared=True, known=90), DivergenceCause.EVICTED),
        (Diagnosis(compared=True, named=CHANGED, known=90), DivergenceCause.MESSAGES_CHANGED),
    ],
)
def test_the_nearest_cause_is_told(diagnosis: Diagnosis, cause: DivergenceCause | None) -> None:
    told = diagnosis.divergence(Placed(100, 10, divergence=LEFT))
    assert (None if told is None else told.cause) is cause
    assert diagnosis.lost(Placed(100, 10)) is (diagnosis.known > 10 + EVICTED_TOKENS)


def test_what_was_evicted_is_told_by_how_far_it_went() -> None:
    told = Diagnosis(known=90).divergence(Placed(100, 10, divergence=LEFT))
    assert told == Divergence(cause=DivergenceCause.EVICTED, offset=90, missed_tokens=80)


def test_the_last_token_of_a_prompt_is_always_computed_and_never_lost() -> None:
    log = TraceLog()
    log.remember(DOMAIN, "other", trace("hello there"))
    assert diagnose(log, request(), None, trace("hello")).known == 4
    assert diagnose(log, request(), None, trace("")).known == 0


def test_a_turn_that_goes_on_from_one_no_longer_known_is_compared_with_what_is_cached() -> None:
    """One that the client named for a comparison is told not to be there."""
    log = TraceLog()
    assert diagnose(log, request(), "resp_gone", trace("hello")) == Diagnosis()
    named = diagnose(log, request(compare_to="resp_gone"), None, trace("hello"))
    assert named == Diagnosis(compared=True, named=Divergence(cause=DivergenceCause.NOT_FOUND))
