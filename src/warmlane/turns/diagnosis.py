"""Why a turn reuses less than it could."""

from __future__ import annotations

from dataclasses import dataclass

from warmlane.conversation.turn import Divergence, DivergenceCause, TurnRequest
from warmlane.engine import protocol
from warmlane.engine.protocol import Placed
from warmlane.turns.traces import Trace, TraceLog

EVICTED_TOKENS = 32
"""What may be missing of a prefix that was computed once: the last token of a reply has no cell, and what a template
puts in front of every dialogue tells nothing of this one."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What is known of a prompt before it is placed. `named` is how it leaves the turn it was `compared` with. Its
    first `known` tokens were computed before, in its own domain."""

    compared: bool = False
    named: Divergence | None = None
    known: int = 0

    def lost(self, placed: Placed) -> bool:
        """Whether the engine once had more of the prompt than it has now."""
        return self.known - placed.cached_tokens > EVICTED_TOKENS

    def divergence(self, placed: Placed) -> Divergence | None:
        """The nearest cause: what the client changed of the turn it named, else what the engine gave up, else, where
        there was no turn to compare with, why the prompt leaves what is cached."""
        if self.named is not None:
            return self.named
        if self.lost(placed):
            missed = self.known - placed.cached_tokens
            return Divergence(cause=DivergenceCause.EVICTED, offset=self.known, missed_tokens=missed)
        if self.compared or placed.divergence is None:
            return None
        return _prefix_left(placed.divergence)


def diagnose(traces: TraceLog, request: TurnRequest, previous_response_id: str | None, prompt: Trace) -> Diagnosis:
    """`previous_response_id` is the turn that the conversation goes on from; `request.compare_to` comes before it."""
    known = min(traces.known(request.domain, prompt), max(0, len(prompt.tokens) - 1))
    reference = request.compare_to or previous_response_id
    if reference is None:
        return Diagnosis(known=known)
    named = traces.compare(request.domain, reference, prompt)
    if named is not None and named.cause is DivergenceCause.NOT_FOUND and request.compare_to is None:
        return Diagnosis(known=known)  # stored, but prefilled before this process or too long ago
    return Diagnosis(compared=True, named=named, known=known)


def _prefix_left(left: protocol.Divergence) -> Divergence:
    return Divergence(
        cause=DivergenceCause.PREFIX_LEFT,
        offset=left.offset,
        missed_tokens=left.cached_tokens - left.offset,
        before=left.cached,
        now=left.prompt,
    )
