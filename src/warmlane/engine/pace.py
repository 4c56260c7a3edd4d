"""How many tokens of prefill go into a step: the length of a slice is the gap it leaves in the streams beside it."""

from __future__ import annotations

SLICE_BESIDE_DECODE = 128
"""Most tokens of prefill a step while others decode. The best time to the first token of the sizes swept on 2 cores."""

SHORT_STEPS = 2
"""A prompt that so many of the longest slices beside decode compute is short: it takes these at once. Cut into smaller
ones as a long prompt is, eight of them made twice as many steps, and cost a tenth of the throughput."""

SLICE_ALONE = 256
"""Tokens of prefill a step while nobody decodes: what a cancellation or a new turn may have to wait for. Not adapted
to measured times, so that a turn that runs alone is split, and therefore rounded, the same way each time."""

GAP_IN_DECODE_STEPS = 7.0
"""The gap that is left by default while a long prompt is computed, in undisturbed decode steps."""

SHORTEST_GAP_MS = 20.0
"""Nobody sees gaps shorter than this, so slices are not cut below it unless the operator says so."""

_MIN_SLICE = 16
_MIN_SLICE_ASKED = 1
_SMOOTHING = 0.1


class Pace:
    """Chooses slices from what steps have taken lately.

    `max_gap_ms` is the operator's bound of a gap between two tokens of a stream; None leaves it to the defaults. The
    bound is kept as far as a slice of a few tokens allows.
    """

    def __init__(
        self,
        *,
        n_batch: int,
        slice_alone: int = SLICE_ALONE,
        slice_beside_decode: int = SLICE_BESIDE_DECODE,
        max_gap_ms: float | None = None,
    ) -> None:
        self._alone = min(n_batch, slice_alone)
        self._beside = min(n_batch, slice_beside_decode)
        self._n_batch = n_batch
        self._max_gap_ms = max_gap_ms
        self._decode_ms: float | None = None
        self._rows_ms = 0.0
        self._beside_ms_per_token: float | None = None
        self._alone_ms_per_token: float | None = None

    @property
    def short(self) -> int:
        """A turn with no more than this to compute is done in a step or two."""
        return SHORT_STEPS * self._beside

    @property
    def prefill_ms_per_token(self) -> float | None:
        """What computing a token of a prompt costs; None before the first was computed."""
        alone, beside = self._alone_ms_per_token, self._beside_ms_per_token
        return alone if alone is not None else beside

    def room_ms(self, *, hurry: bool) -> float:
        """What else may be done in a step of decode rows: within the gap, and without `hurry` for no longer than an
        undisturbed step takes. Less than nothing if the rows fill the gap already."""
        within_gap = self._gap_ms - self._rows_ms
        return within_gap if hurry else min(within_gap, self._decode_ms or 0.0)

    def slice_length(self, *, decode_rows: int, short: bool) -> int:
        """The most tokens of prefill in a step beside `decode_rows` others; 0 if the batch has no room for any."""
        if decode_rows == 0:
            return self._alone
        wanted = self._beside if short and self._max_gap_ms is None else self._within_gap()
        return max(0, min(wanted, self._n_batch - decode_rows))

    def observe(self, *, decode_rows: int, prefill_tokens: int, took_ms: float, instead: bool = False) -> None:
        """A step of this composition took this long. With `instead` it had no slice because something else was done in
        its place: that says nothing of undisturbed steps."""
        if prefill_tokens == 0:
            self._rows_ms = took_ms
            if not instead:
                self._decode_ms = _smooth(self._decode_ms, took_ms)
        elif decode_rows == 0:
            self._alone_ms_per_token = _smooth(self._alone_ms_per_token, took_ms / prefill_tokens)
        else:
            rest_ms = max(0.0, took_ms - (self._decode_ms or 0.0))
            self._beside_ms_per_token = _smooth(self._beside_ms_per_token, rest_ms / prefill_tokens)

    @property
    def _gap_ms(self) -> float:
        if self._max_gap_ms is not None:
            return self._max_gap_ms
        return max(SHORTEST_GAP_MS, GAP_IN_DECODE_STEPS * (self._decode_ms or 0.0))

    def _within_gap(self) -> int:
        least = _MIN_SLICE if self._max_gap_ms is None else _MIN_SLICE_ASKED
        per_token = self._beside_ms_per_token
        if per_token is None:
            per_token = self._alone_ms_per_token
        least = min(least, self._beside)
        if per_token is None:
            return least
        room_ms = self._gap_ms - (self._decode_ms or 0.0)
        return max(least, min(self._beside, int(room_ms / per_token) if per_token > 0 else self._beside))


def _smooth(mean: float | None, value: float) -> float:
    return value if mean is None else mean + _SMOOTHING * (value - mean)
