"""What turns that did not end well have had prefilled: their rows do not say it, and it goes when those are deleted."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from warmlane.engine.vectors import Int32Array, digest

MAX_TOKENS: Final = 1_000_000
"""Tokens that are remembered of all prompts together."""


@dataclass(frozen=True, slots=True, eq=False)
class Leftover:
    """A prompt that the engine has begun, or has done with where it was `answered`; `cached_tokens` of it were warm
    before. Without tokens it is not known what was prefilled."""

    tokens: Int32Array = field(default_factory=lambda: np.empty(0, np.int32), repr=False)
    cached_tokens: int = 0
    answered: bool = False

    def prompt(self, keep: int) -> tuple[bytes, int]:
        """Digest and length of a beginning of the prompt that what was computed for it has, beyond the first `keep`
        tokens. Of a prompt that may not be done that is the first token that was not warm: what has it was computed
        for this turn or later."""
        at = self.tokens.size - 1
        if at < 0:
            return b"", 0
        if not self.answered:
            at = min(at, max(self.cached_tokens, keep) + 1)
        return digest(self.tokens[:at]), at


class Leftovers:
    """The leftovers of turns of this process by response id; the oldest go first beyond `max_tokens`. `now` is wall
    time in seconds, as that of rows."""

    def __init__(self, *, max_tokens: int = MAX_TOKENS, now: Callable[[], float] = time.time) -> None:
        self._max_tokens = max_tokens
        self._now = now
        self._known: OrderedDict[str, tuple[float, Leftover | None]] = OrderedDict()
        self._tokens = 0
        self._complete_since = now()

    def note(self, response_id: str, left: Leftover | None) -> None:
        """A turn has failed or was cancelled; with None nothing was prefilled for it."""
        self.forget([response_id])
        self._known[response_id] = (self._now(), left)
        self._tokens += _weight(left)
        while self._tokens > self._max_tokens:
            oldest = next(iter(self._known))
            self._complete_since = self._known[oldest][0]
            self.forget([oldest])

    def take(self, response_id: str, *, created_at: float) -> Leftover | None:
        """What to look for of a response that was begun at `created_at`; it is not known here any more. None if there
        is nothing: it was not prefilled, or not in this process, as by another server of the store. Of one from before
        this process, or that was given up for others, it is not known what was prefilled."""
        if response_id not in self._known:
            return Leftover() if created_at < self._complete_since else None
        left = self._known[response_id][1]
        self.forget([response_id])
        return left

    def forget(self, response_ids: Iterable[str]) -> None:
        for response_id in response_ids:
            known = self._known.pop(response_id, None)
            if known is not None:
                self._tokens -= _weight(known[1])


def _weight(left: Leftover | None) -> int:
    return 1 if left is None else max(1, left.tokens.size)
