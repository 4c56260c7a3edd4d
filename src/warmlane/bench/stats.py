"""Medians, percentiles, and whether a bound was missed."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

CONFIDENCE = 0.9
RESAMPLES = 10_000


class Better(StrEnum):
    """Which way is better; a bound is an upper one where lower is better, else a lower one."""

    LOWER = "lower"
    HIGHER = "higher"


class Verdict(StrEnum):
    """`UNDECIDED`: the estimate is beyond the bound, but its interval reaches it."""

    MET = "met"
    MISSED = "missed"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Estimate:
    """The median of some values, and the bounds of its bootstrap interval."""

    median: float
    low: float
    high: float


def percentile(values: Sequence[float], percent: float) -> float:
    """The nearest-rank percentile: always one of the values. Raises `ValueError` for none."""
    if not values:
        raise ValueError("no values")
    rank = math.ceil(percent / 100 * len(values))
    return sorted(values)[max(rank, 1) - 1]


def estimate(values: Sequence[float], *, seed: int = 0, resamples: int = RESAMPLES) -> Estimate:
    """The median with its percentile-bootstrap interval of `CONFIDENCE` (Efron 1979). Raises `ValueError` for none.

    The same values and seed give the same interval.
    """
    if not values:
        raise ValueError("no values")
    rng = random.Random(seed)
    medians = sorted(statistics.median(rng.choices(values, k=len(values))) for _ in range(resamples))
    tail = (1 - CONFIDENCE) / 2 * 100
    return Estimate(statistics.median(values), percentile(medians, tail), percentile(medians, 100 - tail))


def judge(found: Estimate, bound: float, better: Better) -> Verdict:
    """Missed only if the whole interval lies beyond the bound."""
    if better is Better.LOWER:
        met, missed = found.median <= bound, found.low > bound
    else:
        met, missed = found.median >= bound, found.high < bound
    if met:
        return Verdict.MET
    return Verdict.MISSED if missed else Verdict.UNDECIDED
