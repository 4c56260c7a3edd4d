"""Servers that share a PostgreSQL database lock rows in one order, so that none waits for another that waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import asyncpg
import pytest

from support.postgres import PostgresServer
from unit.store.test_size import run
from unit.store.turns import NOW, turn
from warmlane.errors import StoreUnavailable
from warmlane.store import InUse, open_store
from warmlane.store.base import HELD_S
from warmlane.store.sql import SqlResponseStore

pytestmark = pytest.mark.postgres
IDS = [f"r{n}" for n in range(10)]
LATER = NOW + 500
PRUNED_AT = NOW + 100 + HELD_S


@pytest.fixture(scope="module")
def url(postgres: PostgresServer) -> str:
    return postgres.create("locks")


@pytest.fixture
async def stores(url: str) -> AsyncIterator[list[SqlResponseStore]]:
    """Of two servers, empty."""
    opened = [await open_store(url) for _ in range(2)]
    for tenant in ("ada", "bob"):
        await opened[0].erase(tenant)
    yield opened
    for store in opened:
        await store.close()


async def save_rows(store: SqlResponseStore, **fields: float) -> None:
    """Rows that lie in the table in the opposite order of their ids."""
    for name in reversed(IDS):
        await store.save(turn(name, **fields))


async def erased(store: SqlResponseStore) -> Callable[[], Awaitable[object]]:
    await save_rows(store)
    return lambda: store.erase("ada")


async def expired(store: SqlResponseStore) -> Callable[[], Awaitable[object]]:
    await save_rows(store, expires_at=NOW + 1)
    return lambda: store.prune(now=PRUNED_AT)


async def too_many(store: SqlResponseStore) -> Callable[[], Awaitable[object]]:
    await save_rows(store, expires_at=LATER)
    await store.save(turn("z", created_at=NOW + 1, expires_at=LATER))
    return lambda: store.prune(now=NOW, max_bytes=1)


async def in_use(store: SqlResponseStore) -> Callable[[], Awaitable[object]]:
    await save_rows(store, expires_at=NOW + 1)
    return lambda: store.prune(now=PRUNED_AT, in_use=lambda: InUse([(name, "ada") for name in reversed(IDS)]))


async def continued(store: SqlResponseStore) -> Callable[[], Awaitable[object]]:
    await save_rows(store, expires_at=NOW + 1)
    for n, name in enumerate(reversed(IDS)):
        await store.save(turn(f"s{n}", name, expires_at=LATER))
    return lambda: store.prune(now=PRUNED_AT)


async def tended(store: SqlResponseStore) -> Callable[[], Awaitable[object]]:
    for name in reversed(IDS):
        await store.runs.begin(run(name, expires_at=LATER))
    return lambda: store.runs.tend(now=NOW + 1, error=b"{}")


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        await connection.close()


async def waits(watcher: asyncpg.Connection, work: asyncio.Task[object]) -> None:
    """Until somebody waits for a lock."""
    while not await watcher.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
        assert not work.done(), work.result()


@pytest.mark.parametrize("prepared", [erased, expired, too_many, in_use, continued, tended])
async def test_who_waits_for_a_row_holds_none_behind_it(
    stores: list[SqlResponseStore], url: str, prepared: Callable[[SqlResponseStore], Awaitable[Callable[[], object]]]
) -> None:
    begin = await prepared(stores[0])
    async with connected(url) as other, connected(url) as watcher:
        async with other.transaction():
            await other.execute("SELECT id FROM responses WHERE id = 'r0' FOR UPDATE")
            work = asyncio.ensure_future(begin())  # type: ignore[arg-type]
            await waits(watcher, work)
            free = await watcher.fetch("SELECT id FROM responses WHERE id LIKE 'r%' ORDER BY id FOR UPDATE SKIP LOCKED")
        await work
    assert [row["id"] for row in free] == IDS[1:]


async def test_two_servers_prune_and_erase_at_once(
    stores: list[SqlResponseStore], url: str, postgres: PostgresServer
) -> None:
    """Everything any of them deletes, keeps or tends is the others' too."""
    first, second = stores
    for n in range(5):
        now = NOW + 1000 * n
        for name in reversed(IDS):
            for tenant in ("ada", "bob"):
                await first.save(turn(f"{tenant}{name}", tenant=tenant, created_at=now, expires_at=now + 1))
                await first.save(turn(f"{tenant}{name}+", f"{tenant}{name}", tenant=tenant, expires_at=now + 900))
        used = [(f"bob{name}", "bob") for name in IDS]
        pruned_at = now + 2 + HELD_S
        await asyncio.gather(
            first.prune(now=pruned_at, max_bytes=1, in_use=lambda used=used: InUse(used)),  # type: ignore[misc]
            second.prune(now=pruned_at, max_bytes=1, in_use=lambda used=used: InUse(used[::-1])),  # type: ignore[misc]
            second.erase("ada"),
            first.erase("ada"),
        )
        assert [await second.get(f"ada{name}", "ada", now=now) for name in IDS] == [None] * 10
        assert None not in [await second.history(f"bob{name}+", "bob", now=now) for name in IDS]
    assert postgres.run_sql("SELECT deadlocks FROM pg_stat_database WHERE datname = 'locks'") == "0"


async def test_a_deadlock_is_a_store_that_is_busy(stores: list[SqlResponseStore], url: str) -> None:
    store = stores[0]
    await save_rows(store)
    async with connected(url) as other:
        # The store looks for a deadlock once it has waited for a second; this one does not, so it is not the victim.
        await other.execute("SET deadlock_timeout = '1min'")
        async with other.transaction():
            await other.execute("SELECT id FROM responses WHERE id = 'r5' FOR UPDATE")
            async with connected(url) as watcher, asyncio.timeout(20):
                erasing = asyncio.create_task(store.erase("ada"))
                await waits(watcher, erasing)
                locked = asyncio.create_task(other.execute("SELECT id FROM responses WHERE id = 'r0' FOR UPDATE"))
                with pytest.raises(StoreUnavailable, match="is busy"):
                    await erasing
                await locked
    assert sorted((await store.erase("ada")).response_ids) == IDS
