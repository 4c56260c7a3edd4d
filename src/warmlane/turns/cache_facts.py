"""What a turn found warm, and why it was not more."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from warmlane.conversation.turn import CacheFacts, CacheOutcome, Divergence
from warmlane.engine.protocol import Placed
from warmlane.engine.vectors import digest
from warmlane.sessions import Lease, MissReason


def cache_facts(
    lease: Lease, placed: Placed, prompt: npt.NDArray[np.int32], *, lost: bool, divergence: Divergence | None
) -> CacheFacts:
    """`lost`: most of the prompt was warm once, and is not any more."""
    return CacheFacts(
        outcome=_outcome(lease, placed),
        reason=_reason(lease, lost=lost).value,
        cached_tokens=placed.cached_tokens,
        divergence=divergence,
        prompt=digest(prompt[:-1]),
    )


def _reason(lease: Lease, *, lost: bool) -> MissReason:
    """Why so much was prefilled: what the lookup found, or if that was no miss, that the engine gave up the cells."""
    if lost and lease.reason in (MissReason.HIT, MissReason.FRESH, MissReason.NO_KEY):
        return MissReason.EVICTED
    return lease.reason


def _outcome(lease: Lease, placed: Placed) -> CacheOutcome:
    if lease.hit:
        return CacheOutcome.HIT
    if placed.cached_tokens:
        return CacheOutcome.PREFIX_HIT
    if lease.reason in (MissReason.FRESH, MissReason.NO_KEY):
        return CacheOutcome.FRESH
    return CacheOutcome.COLD_REPLAY
