"""Many writers and readers at once, on one server's store and on those of two, lose nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from support.store_load import TURNS, check, write_and_read
from support.store_locks import locked_often
from warmlane.store import ResponseStore, open_store

pytestmark = pytest.mark.timeout(300)
CONVERSATIONS = 8


async def test_many_writers_and_readers_at_once(store: ResponseStore) -> None:
    told = await write_and_read(store, range(CONVERSATIONS), seed=1)

    assert len(told.saved) == CONVERSATIONS * TURNS
    await check(store, sorted(told.saved))


@pytest.mark.parametrize("kind", ["file", pytest.param("postgres", marks=pytest.mark.postgres)])
async def test_two_servers_write_while_another_process_locks_the_store_for_long(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    url = str(tmp_path / "warmlane.db") if kind == "file" else request.getfixturevalue("shared_url")
    patient = await open_store(url, timeout_s=60.0)
    await patient.erase("ada")
    stores = [await open_store(url, timeout_s=0.5) for _ in range(2)]
    with locked_often(url, hold_s=(0.0, 1.0), free_s=(0.2, 1.0)):
        mine = [range(n, CONVERSATIONS, 2) for n in range(2)]
        await asyncio.gather(*(write_and_read(s, mine[n], seed=n) for n, s in enumerate(stores)))

    await check(patient, range(CONVERSATIONS * TURNS))
    for store in (patient, *stores):
        await store.close()
