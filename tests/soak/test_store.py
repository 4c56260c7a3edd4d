"""A store that is written without end stays within its bound. `WARMLANE_SOAK_ROWS` sets how many responses (20,000)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from unit.store.turns import NOW, turn
from warmlane.store import open_store
from warmlane.store.rows import to_columns

pytestmark = pytest.mark.timeout(7200)
ROWS = int(os.environ.get("WARMLANE_SOAK_ROWS", "20000"))
EVERY = 200


def bytes_in(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())


async def test_rows_and_bytes_stay_under_the_bound_and_the_oldest_go_first(tmp_path: Path) -> None:
    store = await open_store(str(tmp_path / "warmlane.db"))
    row_bytes = to_columns(turn("r00000"))["size_bytes"]
    assert isinstance(row_bytes, int)
    cap = 1000 * row_bytes
    gone: set[str] = set()
    sizes: list[int] = []
    for n in range(ROWS):
        # Conversations of three turns, so that whole ones go.
        parent = f"r{n - 1:05}" if n % 3 else None
        await store.save(turn(f"r{n:05}", parent, created_at=NOW + n, expires_at=NOW + 10 * ROWS))
        if n % EVERY == EVERY - 1:
            gone.update(await store.prune(now=NOW + n, max_bytes=cap))
            sizes.append(bytes_in(tmp_path))

    assert gone == {f"r{n:05}" for n in range(len(gone))}
    assert ROWS - 1000 - 3 <= len(gone) <= ROWS - 1000 + 3
    assert await store.get("r00000", "ada", now=NOW) is None
    assert await store.history("r00002", "ada", now=NOW) is None
    assert await store.history(f"r{ROWS - 1:05}", "ada", now=NOW) is not None
    # The file takes its own pages again: it does not grow once it is full.
    assert max(sizes[len(sizes) // 2 :]) <= 1.2 * max(sizes[: len(sizes) // 2])
    await store.close()
