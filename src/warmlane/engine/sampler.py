"""Picking the next token from logits, per sequence and seeded."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from warmlane.engine.protocol import SamplingParams

Logits = npt.NDArray[np.float32]
_Ids = npt.NDArray[np.intp]
_Values = npt.NDArray[np.float64]

TAIL_NATS = 30.0
"""Tokens less likely than the best one by more than this factor (e^-30 ~ 1e-13) are never drawn: float32 logits do not
resolve them, and leaving them out keeps the work proportional to the plausible tokens, not to the vocabulary."""

NUCLEUS_START = 256
_NEVER = np.float32(-np.inf)


class BadLogits(ArithmeticError):
    """The model produced logits without a finite maximum."""


class Sampler:
    """Sampling state of one sequence: the generator and the counts of what was sampled.

    Filters in llama.cpp's order (penalties, top_k, top_p, min_p, then temperature), so that temperature does not change
    which tokens are plausible. Penalties are OpenAI's: `presence` once and `frequency` per occurrence, over the sampled
    tokens. `entropy` gives the seed where the request has none.
    """

    def __init__(self, params: SamplingParams, *, entropy: Callable[[], int]) -> None:
        seed = params.seed if params.seed is not None else entropy()
        self._params = params
        self._rng = np.random.Generator(np.random.PCG64(seed & (2**64 - 1)))
        self._penalised = params.presence_penalty != 0 or params.frequency_penalty != 0
        self._counts: dict[int, int] = {}

    def sample(self, logits: Logits, allowed: npt.NDArray[np.bool_] | None = None) -> int:
        """The next token for one row of logits (shape `[n_vocab]`, not changed), among the `allowed` ones (same shape,
        at least one); None allows all. Raises `BadLogits`."""
        if self._penalised and self._counts:
            logits = self._penalise(logits)
        if allowed is not None:
            logits = np.where(allowed, logits, _NEVER)
        best = int(logits.argmax())
        top = float(logits[best])
        if not np.isfinite(top):
            raise BadLogits("The model produced logits that are not finite.")
        token = best if self._params.temperature <= 0 else self._draw(logits, top)
        if self._penalised:
            self._counts[token] = self._counts.get(token, 0) + 1
        return token

    def _penalise(self, logits: Logits) -> Logits:
        n = len(self._counts)
        ids = np.fromiter(self._counts.keys(), dtype=np.intp, count=n)
        counts = np.fromiter(self._counts.values(), dtype=np.float32, count=n)
        changed = logits.copy()
        changed[ids] -= np.float32(self._params.presence_penalty) + np.float32(self._params.frequency_penalty) * counts
        return changed

    def _draw(self, logits: Logits, top: float) -> int:
        params = self._params
        ids: _Ids = np.flatnonzero(logits >= top - TAIL_NATS * max(1.0, params.temperature))
        values: _Values = logits[ids].astype(np.float64) - top
        if 0 < params.top_k < ids.size:
            ids, values = _largest(ids, values, params.top_k)
        if params.top_p < 1.0:
            ids, values = _nucleus(ids, values, params.top_p)
        if params.min_p > 0.0:
            keep = values >= np.log(min(params.min_p, 1.0))
            ids, values = ids[keep], values[keep]
        cumulative = np.cumsum(np.exp(values / params.temperature))
        drawn = int(np.searchsorted(cumulative, self._rng.random() * cumulative[-1], side="right"))
        return int(ids[min(drawn, ids.size - 1)])


def _largest(ids: _Ids, values: _Values, k: int) -> tuple[_Ids, _Values]:
    keep = np.argpartition(values, -k)[-k:]
    return ids[keep], values[keep]


def _nucleus(ids: _Ids, values: _Values, top_p: float) -> tuple[_Ids, _Values]:
    """The smallest set of most likely tokens whose probability reaches `top_p` (at least one token).

    Sorts only as many of the most likely tokens as turn out to be needed.
    """
    total = float(np.exp(values).sum())
    k = NUCLEUS_START
    while True:
        some_ids, some = _largest(ids, values, k) if k < ids.size else (ids, values)
        order = np.argsort(-some, kind="stable")
        mass = np.cumsum(np.exp(some[order])) / total
        needed = int(np.searchsorted(mass, top_p)) + 1
        if needed <= some.size or some.size == ids.size:
            kept = order[: max(1, needed)]
            return some_ids[kept], some[kept]
        k *= 8
