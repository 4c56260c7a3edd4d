"""Single flight: of several turns that share an uncomputed prefix one computes it, and the others wait for that.

The flight belongs to the prefix, not to its driver: a driver that ends hands what it has computed to the oldest of its
followers. A follower waits no further than where its own prompt leaves the driver's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from warmlane.engine.turn import Turn
from warmlane.engine.vectors import common_prefix

MIN_SHARED = 16
"""Tokens a follower must gain: below this, computing them itself costs less than the wait. A spare turn has time."""

MAX_FAILED_DRIVERS = 2
"""A prefix whose driver failed this often may itself be what fails: whoever still waits computes all of it alone."""


def find_driver(turn: Turn, turns: Iterable[Turn], reusable: Callable[[], int]) -> Turn | None:
    """The turn that will have computed the longest prefix of `turn`'s prompt, if waiting for it gains anything.

    `reusable` says how many tokens `turn` could reuse without waiting; it is asked only if there is a candidate.
    """
    if turn.alone:
        return None
    best: Turn | None = None
    reach = 0
    least = 1 if turn.request.spare else MIN_SHARED
    for other in turns:
        if other.drives and other.request.domain == turn.request.domain:
            shared = min(common_prefix(turn.tokens.view, other.tokens.view), len(turn.tokens) - 1)
            if shared >= other.computed + least and shared > reach:
                best, reach = other, shared
    if best is None or reach < reusable() + least:
        return None
    turn.follows, turn.follows_to = best, reach
    return best


def still_follows(turn: Turn) -> bool:
    """Whether the driver that `turn` waits for has yet to reach the point up to which they share."""
    driver = turn.follows
    if driver is not None and (not driver.drives or driver.computed >= turn.follows_to):
        turn.follows = None
    return turn.follows is not None


def land(driver: Turn, turns: Iterable[Turn], *, failed: bool) -> Turn | None:
    """The driver has come to an end: nobody follows it any more. Returns its oldest follower, which is to drive on."""
    followers = [t for t in turns if t.follows is driver]
    for turn in followers:
        turn.follows = None
        turn.failed_drivers += failed
        turn.alone = turn.failed_drivers >= MAX_FAILED_DRIVERS
    return min(followers, key=lambda t: t.id, default=None)
