"""A response lives as long as its time is not up, or as long as one lives that continues it."""

from __future__ import annotations

import random

import msgspec
import pytest

from unit.store.test_chains import chain_ids
from unit.store.test_size import run, small_store
from unit.store.turns import NOW, turn
from warmlane.store import InUse, LoggedEvent, ResponseStore, TurnStatus
from warmlane.store.base import HELD_S


async def readable(store: ResponseStore, *ids: str, now: float) -> list[str]:
    return [i for i in ids if await store.get(i, "ada", now=now) is not None]


async def test_a_chain_that_is_continued_outlives_its_beginning(store: ResponseStore) -> None:
    await store.save(turn("a", expires_at=NOW + 5))
    await store.save(turn("b", "a", expires_at=NOW + 10))
    await store.save(turn("c", "b", expires_at=NOW + 500))

    for now in (NOW + 6, NOW + 200, NOW + 500):
        await store.prune(now=now)
        assert await chain_ids(store, "c", now) == ["a", "b", "c"]
        assert await readable(store, "a", "b", "c", now=now) == ["a", "b", "c"]
    assert await readable(store, "a", "b", "c", now=NOW + 501) == []
    assert sorted(await store.prune(now=NOW + 501 + HELD_S)) == ["a", "b", "c"]


async def test_it_lives_before_anything_was_pruned_too(store: ResponseStore) -> None:
    await store.runs.begin(run("a", expires_at=NOW + 5))
    await store.runs.append("a", "ada", [LoggedEvent(0, b"{}")])
    await store.runs.complete(turn("a", expires_at=NOW + 5))
    await store.save(turn("b", "a", expires_at=NOW + 10))
    await store.save(turn("c", "b", expires_at=NOW + 500))

    assert await chain_ids(store, "b", NOW + 400) == ["a", "b"]
    assert await store.runs.events("a", "ada", now=NOW + 400) == (LoggedEvent(0, b"{}"),)
    assert await store.runs.events("a", "ada", now=NOW + 501) is None


async def test_a_fork_nothing_continues_goes_and_its_trunk_stays(store: ResponseStore) -> None:
    await store.save(turn("trunk", expires_at=NOW + 5))
    await store.save(turn("dead", "trunk", expires_at=NOW + 6))
    await store.save(turn("live", "trunk", expires_at=NOW + 500))

    assert await store.prune(now=NOW + 7 + HELD_S) == ("dead",)
    assert await chain_ids(store, "live", NOW + 100) == ["trunk", "live"]


async def test_another_tenants_row_keeps_nothing_alive(store: ResponseStore) -> None:
    await store.save(turn("a", expires_at=NOW + 5))
    await store.save(turn("b", "a", tenant="bob", expires_at=NOW + 500))

    assert await readable(store, "a", now=NOW + 6) == []
    assert await store.prune(now=NOW + 6 + HELD_S) == ("a",)


async def test_what_a_turn_is_about_to_continue_does_not_go_meanwhile(store: ResponseStore) -> None:
    await store.save(turn("a", expires_at=NOW + 5))
    await store.save(turn("b", "a", expires_at=NOW + 10))

    for now in (NOW + 15, NOW + 50, NOW + 100, NOW + 160):
        assert await store.prune(now=now, in_use=lambda: InUse([("b", "ada")])) == ()
    await store.save(turn("c", "b", expires_at=NOW + 500))
    assert await store.prune(now=NOW + 400) == ()
    assert await chain_ids(store, "c", NOW + 400) == ["a", "b", "c"]


async def test_nobody_holds_another_tenants_row(store: ResponseStore) -> None:
    await store.save(turn("a", expires_at=NOW + 5))

    assert await store.prune(now=NOW + 6 + HELD_S, in_use=lambda: InUse([("a", "bob"), ("x", "ada")])) == ("a",)


async def test_a_run_in_progress_keeps_what_it_continues(store: ResponseStore) -> None:
    await store.save(turn("a", expires_at=NOW + 5))
    await store.save(turn("b", "a", expires_at=NOW + 5))
    await store.runs.begin(msgspec.structs.replace(turn("c", "b", expires_at=NOW + 6), status=TurnStatus.QUEUED))

    for now in (NOW + 30, NOW + 30 + 2 * HELD_S):
        assert await store.prune(now=now) == ()
    assert await store.runs.complete(turn("c", "b", expires_at=NOW + 900))
    assert await chain_ids(store, "c", NOW + 800) == ["a", "b", "c"]


async def test_a_long_chain_is_kept_some_rows_at_a_time(tmp_path: object) -> None:
    async with small_store(tmp_path / "warmlane.db", batch=3) as (store, _):  # type: ignore[operator]
        ids = [f"r{n:02}" for n in range(40)]
        for n, name in enumerate(ids):
            await store.save(turn(name, ids[n - 1] if n else None, expires_at=NOW + 5))
        for n, name in enumerate(forks := [f"f{n:02}" for n in range(10)]):
            await store.save(turn(name, ids[4 * n], expires_at=NOW + 5))
        await store.save(turn("tip", ids[-1], expires_at=NOW + 5000))

        assert sorted(await store.prune(now=NOW + 1000)) == sorted(forks)
        assert await chain_ids(store, "tip", NOW + 1000) == [*ids, "tip"]


async def test_a_deep_chain_is_climbed_in_few_transactions(tmp_path: object) -> None:
    async with small_store(tmp_path / "warmlane.db", batch=50) as (store, written):  # type: ignore[operator]
        for n in range(120):
            await store.save(turn(f"r{n}", f"r{n - 1}" if n else None, expires_at=NOW + (5000 if n == 119 else 5)))

        assert await store.prune(now=NOW + 1000) == ()
        assert written == [("kept", 50), ("kept", 50), ("kept", 19)]
        assert await store.prune(now=NOW + 1001) == ()
        assert len(written) == 3


@pytest.mark.parametrize("seed", range(6))
async def test_exactly_what_lives_is_read_and_what_was_dead_for_long_is_gone(store: ResponseStore, seed: int) -> None:
    """Against a model: the effective expiry of a row is the last one in its subtree."""
    chance = random.Random(seed)
    parents: dict[str, str | None] = {}
    own: dict[str, float] = {}
    now = NOW

    def lives_until(name: str) -> float:
        below = [lives_until(child) for child, parent in parents.items() if parent == name]
        return max([own[name], *below])

    for step in range(60):
        now += chance.choice((0, 1, HELD_S / 2, HELD_S))
        if chance.random() < 0.25:
            await store.prune(now=now)
            continue
        living = [name for name in parents if lives_until(name) >= now]
        name = f"r{step:02}"
        parents[name] = chance.choice([*living, None])
        own[name] = now + chance.choice((1, HELD_S, 5 * HELD_S))
        await store.save(turn(name, parents[name], created_at=now, expires_at=own[name]))

    for name in parents:
        lives = lives_until(name) >= now
        assert (await store.get(name, "ada", now=now) is not None) is lives
        assert (await store.history(name, "ada", now=now) is not None) is lives
    gone = await store.prune(now=now + HELD_S)
    assert all(lives_until(name) < now for name in gone)
    long_after = now + 10 * HELD_S
    await store.prune(now=long_after)
    assert (await store.erase("ada")).response_ids == ()
