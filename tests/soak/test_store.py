"""A store that several processes write and read at once, while another locks it again and again, loses no row; and it
stays within its bound. `WARMLANE_SOAK_ROWS` sets how many responses are written to each kind of database (20,000)."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from support.postgres import PostgresServer
from support.store_load import TURNS, Told, check, id_of, row_of, writing_processes
from support.store_locks import locked_often
from unit.store.turns import NOW
from warmlane.store import ResponseStore, open_store
from warmlane.store.rows import to_columns

pytestmark = pytest.mark.timeout(7200)
ROWS = int(os.environ.get("WARMLANE_SOAK_ROWS", "20000")) // TURNS * TURNS
ROUNDS = 10
PROCESSES = 2
KEPT_ROWS = ROWS // 20
TIMEOUT_S = 1.0
PATIENT_S = 600.0
"""The timeout of those that check and prune, and do not ask again."""
HOLD_S = (0.0, 1.8 * TIMEOUT_S)
FREE_S = (0.5, 4.0)


def bytes_in(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())


@pytest.mark.parametrize("kind", ["file", pytest.param("postgres", marks=pytest.mark.postgres)])
async def test_no_row_is_lost_and_the_oldest_go_first(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    server: PostgresServer | None = request.getfixturevalue("postgres") if kind == "postgres" else None
    url = server.create("soak") if server is not None else str(tmp_path / "warmlane.db")
    stores = [await open_store(url, timeout_s=PATIENT_S) for _ in range(2)]
    row_bytes = to_columns(row_of(0))["size_bytes"]
    assert isinstance(row_bytes, int)
    gone: set[str] = set()
    sizes: list[int] = []
    told: list[Told] = []
    with writing_processes(url, PROCESSES, timeout_s=TIMEOUT_S) as processes:
        for process in processes:
            await process.opened()
        for number in range(ROUNDS):
            first, last = (ROWS // TURNS * bound // ROUNDS for bound in (number, number + 1))
            with locked_often(url, hold_s=HOLD_S, free_s=FREE_S):
                written = [p.write_and_read(range(first + n, last, PROCESSES)) for n, p in enumerate(processes)]
                told += await asyncio.gather(*written)
            await check(stores[0], range(first * TURNS, last * TURNS))
            # Both at once, as the servers of one database do.
            pruned = await asyncio.gather(
                *(s.prune(now=NOW + last * TURNS, max_bytes=KEPT_ROWS * row_bytes) for s in stores)
            )
            gone.update(*pruned)
            sizes.append(bytes_in(tmp_path))

    assert sum(len(one.saved) for one in told) == ROWS
    assert min(one.refused for one in told) > 0
    assert min(one.read for one in told) > 0
    print(f"\n{kind}: {sum(one.refused for one in told)} refused, {sum(one.read for one in told)} read, {sizes=}")
    await check_oldest_gone(stores[0], gone)
    if server is None:
        # The file takes its own pages again: it does not grow once it is full.
        assert max(sizes[ROUNDS // 2 :]) <= 1.2 * max(sizes[: ROUNDS // 2])
    for store in stores:
        await store.close()


async def check_oldest_gone(store: ResponseStore, gone: set[str]) -> None:
    assert gone == {id_of(n) for n in range(len(gone))}
    assert ROWS - KEPT_ROWS <= len(gone) <= ROWS - KEPT_ROWS / 3
    assert await store.get(id_of(0), "ada", now=NOW) is None
    assert await store.history(id_of(2), "ada", now=NOW) is None
    whole = -(-len(gone) // TURNS) * TURNS
    await check(store, range(whole, ROWS))
