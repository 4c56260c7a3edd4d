"""Percentiles, the bootstrap interval, and the verdict on a bound."""

from __future__ import annotations

import random

import pytest

from warmlane.bench.stats import Better, Estimate, Verdict, estimate, judge, percentile


@pytest.mark.parametrize(("percent", "value"), [(0, 1), (10, 1), (50, 5), (90, 9), (91, 10), (99, 10), (100, 10)])
def test_a_percentile_is_one_of_the_values(percent: float, value: float) -> None:
    assert percentile([10, 3, 1, 2, 5, 4, 8, 7, 6, 9], percent) == value


def test_no_values_have_no_percentile_and_no_estimate() -> None:
    with pytest.raises(ValueError):
        percentile([], 50)
    with pytest.raises(ValueError):
        estimate([])


def test_the_interval_holds_the_median_and_lies_within_the_values() -> None:
    values = [1.0, 1.1, 0.9, 3.0, 1.05]

    found = estimate(values, seed=3)

    assert found.median == 1.05
    assert min(values) <= found.low <= found.median <= found.high <= max(values)
    assert found == estimate(values, seed=3)


def test_one_value_is_its_own_interval() -> None:
    assert estimate([2.0]) == Estimate(2.0, 2.0, 2.0)


def test_most_intervals_of_a_known_distribution_hold_its_median() -> None:
    """The order statistics of 9 draws from 1..1000 (median 500.5): a 90 % interval may miss it now and then."""
    rng = random.Random(5)
    runs = [estimate([rng.uniform(1, 1000) for _ in range(9)], seed=n, resamples=400) for n in range(200)]

    holding = sum(found.low <= 500.5 <= found.high for found in runs)

    assert holding >= 160


@pytest.mark.parametrize(
    ("found", "bound", "better", "verdict"),
    [
        (Estimate(0.9, 0.8, 1.2), 1.0, Better.LOWER, Verdict.MET),
        (Estimate(1.0, 1.0, 1.0), 1.0, Better.LOWER, Verdict.MET),
        (Estimate(1.1, 1.0, 1.2), 1.0, Better.LOWER, Verdict.UNDECIDED),
        (Estimate(1.1, 1.01, 1.2), 1.0, Better.LOWER, Verdict.MISSED),
        (Estimate(1.1, 0.8, 1.2), 1.0, Better.HIGHER, Verdict.MET),
        (Estimate(0.9, 0.8, 1.0), 1.0, Better.HIGHER, Verdict.UNDECIDED),
        (Estimate(0.9, 0.8, 0.99), 1.0, Better.HIGHER, Verdict.MISSED),
    ],
)
def test_a_bound_is_missed_only_by_the_whole_interval(
    found: Estimate, bound: float, better: Better, verdict: Verdict
) -> None:
    assert judge(found, bound, better) is verdict
