from __future__ import annotations

import numpy as np
import pytest

from warmlane.engine.protocol import SamplingParams
from warmlane.engine.sampler import BadLogits, Sampler

N_VOCAB = 5000


def no_entropy() -> int:
    raise AssertionError("the seed was given")


def sampler(**settings: float) -> Sampler:
    off = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "seed": 1}
    return Sampler(SamplingParams(**{**off, **settings}), entropy=no_entropy)  # type: ignore[arg-type]


def logits(**known: float) -> np.ndarray:
    row = np.full(N_VOCAB, -50.0, dtype=np.float32)
    for name, value in known.items():
        row[int(name[1:])] = value
    return row


def drawn(sampler: Sampler, row: np.ndarray, n: int = 2000) -> np.ndarray:
    return np.bincount([sampler.sample(row) for _ in range(n)], minlength=N_VOCAB) / n


def test_temperature_zero_is_argmax() -> None:
    row = np.random.default_rng(0).normal(size=N_VOCAB).astype(np.float32)
    assert all(sampler(temperature=0.0).sample(row) == row.argmax() for _ in range(5))


def test_the_row_is_not_changed() -> None:
    row = logits(t3=1.0, t4=2.0)
    before = row.copy()
    s = sampler(presence_penalty=1.0)
    s.sample(row)
    s.sample(row)
    assert np.array_equal(row, before)


def test_frequencies_follow_the_probabilities() -> None:
    shares = drawn(sampler(), logits(t1=np.log(0.7), t2=np.log(0.2), t3=np.log(0.1)), 5000)
    assert np.allclose(shares[1:4], (0.7, 0.2, 0.1), atol=0.03)


def test_temperature_flattens() -> None:
    hot = drawn(sampler(temperature=2.0), logits(t1=2.0, t2=0.0))
    cold = drawn(sampler(temperature=0.5), logits(t1=2.0, t2=0.0))
    assert hot[2] > 0.2 > 0.05 > cold[2]


def test_equal_seeds_draw_equal_tokens_and_others_do_not() -> None:
    row = np.random.default_rng(0).normal(size=N_VOCAB).astype(np.float32)
    first, again, other = sampler(seed=5), sampler(seed=5), sampler(seed=6)
    draws = [[s.sample(row) for _ in range(20)] for s in (first, again, other)]
    assert draws[0] == draws[1] != draws[2]


def test_without_a_seed_the_entropy_source_is_asked() -> None:
    row = np.random.default_rng(0).normal(size=N_VOCAB).astype(np.float32)
    params = SamplingParams(temperature=1.0, seed=None)
    a, b = (Sampler(params, entropy=lambda: 9) for _ in range(2))
    assert [a.sample(row) for _ in range(9)] == [b.sample(row) for _ in range(9)]


def test_top_k_keeps_k_tokens() -> None:
    row = np.random.default_rng(0).normal(size=N_VOCAB).astype(np.float32)
    best = set(np.argsort(row)[-3:].tolist())
    assert {sampler(top_k=3, seed=i).sample(row) for i in range(200)} == best


def test_top_p_keeps_the_smallest_sufficient_set() -> None:
    row = logits(t1=np.log(0.5), t2=np.log(0.3), t3=np.log(0.2))
    assert set(np.flatnonzero(drawn(sampler(top_p=0.75), row))) == {1, 2}
    assert set(np.flatnonzero(drawn(sampler(top_p=0.4), row))) == {1}
    assert set(np.flatnonzero(drawn(sampler(top_p=0.0), row))) == {1}


def test_top_p_over_a_flat_vocabulary_keeps_its_share() -> None:
    row = np.zeros(N_VOCAB, dtype=np.float32)
    kept = np.flatnonzero(drawn(sampler(top_p=0.5), row[:500], 5000))
    assert 225 < kept.size <= 251


def test_min_p_is_relative_to_the_best() -> None:
    row = logits(t1=0.0, t2=float(np.log(0.2)), t3=float(np.log(0.05)))
    assert set(np.flatnonzero(drawn(sampler(min_p=0.1), row))) == {1, 2}
    assert set(np.flatnonzero(drawn(sampler(min_p=1.0), row))) == {1}


def test_presence_counts_once_and_frequency_each_time() -> None:
    row = logits(t1=1.0, t2=0.0)
    once = sampler(temperature=0.0, presence_penalty=0.6)
    assert [once.sample(row) for _ in range(3)] == [1, 1, 1]
    twice = sampler(temperature=0.0, frequency_penalty=0.6)
    assert [twice.sample(row) for _ in range(3)] == [1, 1, 2]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_not_finite_are_an_error(bad: float, temperature: float) -> None:
    with pytest.raises(BadLogits):
        sampler(temperature=temperature).sample(logits(t1=bad))


@pytest.mark.parametrize("seed", [-1, 2**63, 0])
def test_any_integer_is_a_seed(seed: int) -> None:
    assert 0 <= sampler(seed=seed).sample(logits(t1=1.0)) < N_VOCAB
