"""What is wrong with a request before anything of it is computed."""

from __future__ import annotations

from collections.abc import Iterable

from warmlane.engine.messages import FailureKind, TurnFailed
from warmlane.engine.protocol import GenerateRequest, OwnerId


def problem_of(request: GenerateRequest, *, window: int, n_vocab: int, running: Iterable[OwnerId]) -> TurnFailed | None:
    """Why the turn can never run, if it cannot. `window` is the longest sequence in tokens, `running` the owners that
    run a turn."""
    n = len(request.prompt)
    if n == 0:
        return TurnFailed(FailureKind.INVALID, "The prompt is empty.")
    if n + (request.max_tokens > 0) > window:
        return TurnFailed(FailureKind.OVERFLOW, "", prompt_tokens=n, limit=window)
    if min(request.prompt) < 0 or max(request.prompt) >= n_vocab:
        return TurnFailed(FailureKind.FAULT, f"A token id is outside the vocabulary of {n_vocab}.")
    if any(owner == request.owner for owner in running):
        return TurnFailed(FailureKind.FAULT, "This conversation already runs a turn.")
    return None
