"""Somebody else who locks a store's database again and again."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import asyncpg

POSTGRES_MODES = ("EXCLUSIVE", "ACCESS EXCLUSIVE")
"""Of which the first lets readers read."""


@contextmanager
def locked_often(url: str, *, hold_s: tuple[float, float], free_s: tuple[float, float]) -> Iterator[None]:
    """While in the block, the database is locked for a while and then free for a while, each between the bounds given;
    at its beginning it is locked, for the longest time."""
    taken, stop, chance = threading.Event(), threading.Event(), random.Random(7)

    def wait(bounds: tuple[float, float]) -> None:
        first = not taken.is_set()
        taken.set()
        stop.wait(bounds[1] if first else chance.uniform(*bounds))

    def lock() -> None:
        try:
            if url.startswith("postgresql://"):
                asyncio.run(_lock_postgres(url, lambda: wait(hold_s), lambda: wait(free_s), stop, chance))
            else:
                _lock_sqlite(url, lambda: wait(hold_s), lambda: wait(free_s), stop)
        finally:
            taken.set()

    locking = threading.Thread(target=lock)
    locking.start()
    try:
        taken.wait()
        yield
    finally:
        stop.set()
        locking.join()


def _lock_sqlite(path: str, hold: Callable[[], None], rest: Callable[[], None], stop: threading.Event) -> None:
    with closing(sqlite3.connect(path, isolation_level=None, timeout=60)) as other:
        while not stop.is_set():
            other.execute("BEGIN IMMEDIATE")
            hold()
            other.execute("ROLLBACK")
            rest()


async def _lock_postgres(
    url: str, hold: Callable[[], None], rest: Callable[[], None], stop: threading.Event, chance: random.Random
) -> None:
    other = await asyncpg.connect(url)
    while not stop.is_set():
        async with other.transaction():
            await other.execute(f"LOCK TABLE responses IN {chance.choice(POSTGRES_MODES)} MODE")
            hold()
        rest()
    await other.close()
