"""Models with a running state on llama.cpp: all of them return to snapshots only, and say what they say alone."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import numpy as np
import pytest

from engine.test_kv_tiers import saved
from engine.test_real_model import compute, ids
from support.speaking import OTHER_DOMAIN, Alone, say, wander
from support.tiny_models import WRITERS
from warmlane.engine.assembly import open_backend
from warmlane.engine.backends.base import Backend, Slice
from warmlane.engine.config import EngineConfig
from warmlane.engine.local import LocalEngine

SYSTEM = "You are the keeper of a lighthouse, and you write down the height of every wave. " * 4
STEM = f"<|im_start|>system\n{SYSTEM}<|im_end|>\n"


@pytest.fixture(scope="module", params=["recurrent", "hybrid"])
def config(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> EngineConfig:
    path = tmp_path_factory.mktemp("models") / f"{request.param}.gguf"
    WRITERS[request.param](path)
    return EngineConfig(model_path=str(path), model_name=request.param, n_ctx=4096, n_threads=1)


@pytest.fixture(scope="module")
def alone(config: EngineConfig) -> Alone:
    return Alone(config)


@pytest.fixture(scope="module")
def backend(config: EngineConfig) -> Iterator[Backend]:
    backend = open_backend(config)
    yield backend
    backend.close()


@pytest.fixture
async def engine(config: EngineConfig) -> AsyncIterator[LocalEngine]:
    engine = await LocalEngine.start(config)
    yield engine
    await engine.close()


def user(message: str) -> str:
    return f"<|im_start|>user\n{message}<|im_end|>\n<|im_start|>assistant\n"


def test_it_can_be_shared_at_its_end_alone_and_restored_whole(backend: Backend) -> None:
    assert not backend.info.can_truncate
    stem, tail = ids(backend, STEM), ids(backend, user("hi"))
    backend.clear()
    compute(backend, 0, 0, stem)
    expected = compute(backend, 0, stem.size, tail)
    backend.clear()
    compute(backend, 0, 0, stem)
    data = saved(backend, 0)
    assert not backend.share(0, 1, stem.size - 1)
    assert not backend.truncate(0, stem.size - 1)
    assert backend.share(0, 1, stem.size)
    assert np.array_equal(compute(backend, 1, stem.size, tail), expected)
    np.testing.assert_allclose(compute(backend, 0, stem.size, tail), expected, rtol=0, atol=0.05)
    backend.drop(0)
    assert not backend.restore(0, data, 0, stem.size - 1)
    assert not backend.restore(0, data[: data.size // 2].copy(), 0, stem.size)
    assert backend.restore(0, data, 0, stem.size)
    np.testing.assert_allclose(compute(backend, 0, stem.size, tail), expected, rtol=0, atol=0.05)


def test_sequences_in_one_batch_keep_their_states_apart(backend: Backend) -> None:
    stems = [ids(backend, STEM + user(f"number {n}")) for n in range(5)]
    alone = []
    for stem in stems:
        backend.clear()
        alone.append(compute(backend, 0, 0, stem))
    backend.clear()
    for seq, stem in enumerate(stems):
        compute(backend, seq, 0, stem[:-1])
    batch = [Slice(seq, stem.size - 1, stem[-1:], wants_logits=True) for seq, stem in enumerate(stems)]
    decoded = backend.decode(batch)
    for index, expected in enumerate(alone):
        np.testing.assert_allclose(decoded.logits(index), expected, rtol=0, atol=0.05)


async def test_each_turn_continues_the_one_before(engine: LocalEngine, alone: Alone) -> None:
    owner, prompt, held = engine.new_owner(), STEM + user("hi"), 0
    for message in ("more", "and more", "the last"):
        heard = await say(engine, prompt, owner)
        assert heard.text == await alone.text(prompt)
        assert heard.cached >= held
        held = heard.held
        prompt += f"{heard.text}<|im_end|>\n{user(message)}"


async def test_an_edited_message_returns_to_the_turn_before_it(engine: LocalEngine, alone: Alone) -> None:
    owner = engine.new_owner()
    one = await say(engine, STEM + user("hi"), owner)
    for message in ("a try", "another try"):
        prompt = f"{STEM}{user('hi')}{one.text}<|im_end|>\n{user(message)}"
        heard = await say(engine, prompt, owner)
        assert heard.cached >= one.held
        assert heard.text == await alone.text(prompt)


async def test_a_prefix_that_two_have_parted_at_serves_a_third(engine: LocalEngine, alone: Alone) -> None:
    heard = [await say(engine, STEM + user(m), engine.new_owner()) for m in ("one", "two", "three")]
    assert heard[0].cached == 0
    assert heard[2].cached > len(STEM) - 16
    for message, one in zip(("one", "two", "three"), heard, strict=True):
        assert one.text == await alone.text(STEM + user(message))


async def test_turns_at_once_over_one_prefix_compute_it_once(engine: LocalEngine, alone: Alone) -> None:
    prompts = [STEM * 3 + user(f"{n}: repeat {n}") for n in range(6)]
    heard = await asyncio.gather(*(say(engine, p, engine.new_owner()) for p in prompts))
    assert sorted(h.cached > 2 * len(STEM) for h in heard) == [False, *[True] * 5]
    assert [h.text for h in heard] == [await alone.text(p) for p in prompts]


async def test_its_state_goes_through_memory_and_disk(config: EngineConfig, alone: Alone, tmp_path: Path) -> None:
    settings = msgspec.structs.replace(config, hot_tokens=0, disk_cache_dir=str(tmp_path / "kv"))
    engine = await LocalEngine.start(settings)
    owner = engine.new_owner()
    one = await say(engine, STEM + user("hi"), owner)
    await say(engine, user("a stranger"), engine.new_owner())
    prompt = f"{STEM}{user('hi')}{one.text}<|im_end|>\n{user('more')}"
    two = await say(engine, prompt, owner)
    assert two.placed.ram_tokens >= one.held
    assert two.text == await alone.text(prompt)
    assert (await engine.stats()).restore_failures == 0
    await engine.close()
    again = await LocalEngine.start(settings)
    prompt += f"{two.text}<|im_end|>\n{user('and more')}"
    three = await say(again, prompt, again.new_owner())
    assert three.placed.disk_tokens >= two.held
    assert three.text == await alone.text(prompt)
    other = await say(again, prompt, again.new_owner(), domain=OTHER_DOMAIN)
    assert (other.cached, other.text) == (0, three.text)
    await again.close()


@pytest.mark.parametrize("seed", range(3))
async def test_whatever_happens_each_answer_is_that_of_the_prompt_alone(
    config: EngineConfig, alone: Alone, seed: int
) -> None:
    """In few cells and little memory, so that much is evicted on the way."""
    settings = msgspec.structs.replace(config, n_ctx=2048, hot_tokens=(0, 600, None)[seed], ram_cache_bytes=4 << 20)
    engine = await LocalEngine.start(settings)
    try:
        await wander(engine, alone, random.Random(seed), turns=25, system=SYSTEM[:200])
        stats = await engine.stats()
        assert stats.cached_tokens > stats.prompt_tokens / 3
        assert stats.restore_failures == 0
    finally:
        await engine.close()
