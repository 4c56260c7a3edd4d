"""What is remembered of turns that did not end well."""

from __future__ import annotations

import numpy as np
import pytest

from support.manual_clock import ManualClock
from warmlane.engine.vectors import digest
from warmlane.turns.leftovers import Leftover, Leftovers

PROMPT = np.arange(10, dtype=np.int32)


@pytest.mark.parametrize(
    ("cached", "answered", "keep", "at"),
    [(0, False, 0, 1), (4, False, 0, 5), (4, False, 6, 7), (9, False, 0, 9), (4, True, 0, 9), (4, True, 6, 9)],
)
def test_what_is_looked_for(cached: int, answered: bool, keep: int, at: int) -> None:
    assert Leftover(PROMPT, cached, answered).prompt(keep) == (digest(PROMPT[:at]), at)


def test_what_is_not_known_is_everything() -> None:
    assert Leftover().prompt(5) == (b"", 0)


def test_each_is_taken_once_and_those_of_others_are_none() -> None:
    log, left = Leftovers(now=lambda: 100.0), Leftover(PROMPT)
    log.note("r1", left)
    log.note("r2", None)

    assert log.take("r1", created_at=100.0) is left
    assert log.take("r1", created_at=100.0) is None
    assert log.take("r2", created_at=90.0) is None
    assert log.take("elsewhere", created_at=101.0) is None
    earlier = log.take("earlier", created_at=99.0)
    assert earlier is not None
    assert earlier.prompt(0) == (b"", 0)


def test_the_oldest_are_given_up_and_then_not_known() -> None:
    clock = ManualClock()
    log = Leftovers(max_tokens=25, now=clock.now)
    begun = clock.now()
    for n in range(3):
        clock.advance(1.0)
        log.note(f"r{n}", Leftover(PROMPT))

    first, second = (log.take(f"r{n}", created_at=begun + n + 0.5) for n in range(2))
    assert first is not None
    assert first.tokens.size == 0
    assert second is not None
    assert second.tokens is PROMPT
    log.forget(["r2"])
    assert log.take("r2", created_at=begun + 2.5) is None
