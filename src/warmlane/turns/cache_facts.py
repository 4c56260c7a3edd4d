"""What a turn found warm, and why it was not more."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from warmlane.conversation.turn import CacheFacts, CacheOutcome
from warmlane.engine.protocol import Placed
from warmlane.engine.vectors import digest
from warmlane.sessions import Lease, MissReason
from warmlane.turns.reply import Reply


def cache_facts(lease: Lease, leading: Reply, prompt: npt.NDArray[np.int32]) -> CacheFacts:
    """Of the reply for which the prompt was computed. Raises `EngineFault` if it was not."""
    return CacheFacts(
        outcome=_outcome(lease, leading.placed),
        reason=_reason(lease, lost=leading.lost).value,
        cached_tokens=leading.placed.cached_tokens,
        divergence=leading.divergence,
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
