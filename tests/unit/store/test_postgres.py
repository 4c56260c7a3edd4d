"""What is particular to PostgreSQL: how it is named, and what happens while it is away, slow or locked."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator

import asyncpg
import pytest

from support.postgres import PostgresServer
from unit.store.turns import NOW, turn
from warmlane.errors import ConfigError, StoreUnavailable
from warmlane.store import open_store
from warmlane.store.open import key_file_of
from warmlane.store.postgres import postgres_url, require_driver
from warmlane.store.sql import SqlResponseStore

TIMEOUT_S = 1.0
server_test = pytest.mark.postgres


@pytest.fixture(scope="module")
def url(postgres: PostgresServer) -> str:
    return postgres.create("particular")


@pytest.fixture
async def store(url: str) -> AsyncIterator[SqlResponseStore]:
    opened = await open_store(url, timeout_s=TIMEOUT_S)
    await opened.erase("ada")
    yield opened
    await opened.close()


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("postgresql://u@h/d", "postgresql+asyncpg://u@h/d"),
        ("postgres://u:p%40ss@h:5433/d", "postgresql+asyncpg://u:p%40ss@h:5433/d"),
        ("postgresql+asyncpg://h/d?sslmode=require", "postgresql+asyncpg://h/d?ssl=require"),
        ("postgresql://u@/d?host=/run/pg", "postgresql+asyncpg://u@/d?host=%2Frun%2Fpg"),
    ],
)
def test_what_a_url_becomes(given: str, used: str) -> None:
    assert postgres_url(given).render_as_string(hide_password=False) == used


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("postgresql://u:hush@h", "no database"),
        ("postgresql://u:hush@h/d?target_session_attrs=any", "'target_session_attrs' is not known"),
        ("postgresql://u:hush@h:port/d", "cannot be read"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_without_its_password(url: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as refused:
        postgres_url(url)
    assert "hush" not in refused.value.message


def test_without_the_driver_the_extra_is_named() -> None:
    require_driver()
    with pytest.raises(ConfigError, match=r"pip install 'warmlane\[postgres\]'"):
        require_driver(lambda _: None)


def test_no_key_file_is_made_for_a_server_elsewhere() -> None:
    assert key_file_of("postgresql://u@h/d") is None


async def test_a_server_that_is_not_there_is_told_in_one_line(unused_tcp_port: int) -> None:
    with pytest.raises(ConfigError, match="cannot be opened") as refused:
        await open_store(f"postgresql://u:hush@127.0.0.1:{unused_tcp_port}/d", timeout_s=TIMEOUT_S)
    assert "hush" not in refused.value.message
    assert "\n" not in refused.value.message


@server_test
async def test_a_database_that_is_not_there_is_told_in_one_line(postgres: PostgresServer) -> None:
    with pytest.raises(ConfigError, match='database "nothing" does not exist'):
        await open_store(postgres.url("nothing"), timeout_s=TIMEOUT_S)


@server_test
@pytest.mark.parametrize("text", ["a\0b", "a\\0b", "\\", "\\\\0", "a\\\0\\"])
async def test_text_that_postgresql_cannot_hold_comes_back(store: SqlResponseStore, text: str) -> None:
    await store.save(turn(text, said=text))
    await store.save(turn("r2", text))

    found = await store.get(text, "ada", now=NOW)
    assert found == turn(text, said=text)
    assert await store.history("r2", "ada", now=NOW) is not None
    assert await store.get(text + "\0", "ada", now=NOW) is None


@server_test
async def test_a_commit_waits_for_the_disk_where_the_servers_default_is_not_to(
    postgres: PostgresServer, store: SqlResponseStore, url: str
) -> None:
    postgres.run_sql("ALTER DATABASE particular SET synchronous_commit = off")
    again = await open_store(url, timeout_s=TIMEOUT_S)
    try:
        async with again._database.reading() as connection:
            setting = (await connection.exec_driver_sql("SHOW synchronous_commit")).scalar_one()
            bound = (await connection.exec_driver_sql("SHOW statement_timeout")).scalar_one()
    finally:
        await again.close()
        postgres.run_sql("ALTER DATABASE particular RESET synchronous_commit")
    assert (setting, bound) == ("on", "1s")


@server_test
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
async def test_a_server_that_goes_and_comes_is_used_again_and_has_every_row(
    postgres: PostgresServer, store: SqlResponseStore, number: signal.Signals
) -> None:
    acknowledged: list[str] = []
    refused: list[str] = []
    enough, stopped = asyncio.Event(), asyncio.Event()

    async def write(writer: int) -> None:
        for n in range(10_000):
            name = f"{writer}.{n}"
            try:
                await store.save(turn(name))
            except StoreUnavailable:
                refused.append(name)
                if stopped.is_set():
                    return
            else:
                acknowledged.append(name)
                if len(acknowledged) > 40:
                    enough.set()

    async with asyncio.TaskGroup() as group:
        for writer in range(4):
            group.create_task(write(writer))
        await enough.wait()
        await asyncio.to_thread(postgres.stop, number)
        stopped.set()
    began = time.monotonic()
    with pytest.raises(StoreUnavailable):
        await store.get(acknowledged[0], "ada", now=NOW)
    took_s = time.monotonic() - began
    await asyncio.to_thread(postgres.start)

    rows = [await store.get(name, "ada", now=NOW) for name in acknowledged]
    assert rows == [turn(name) for name in acknowledged]
    for name in refused:
        assert await store.get(name, "ada", now=NOW) in (None, turn(name))
    await store.save(turn("later"))
    assert took_s < 3 * TIMEOUT_S


@server_test
async def test_a_server_that_hangs_is_given_up_in_time_and_used_once_it_goes_on(
    postgres: PostgresServer, store: SqlResponseStore
) -> None:
    await store.save(turn("before"))
    children = postgres.backends("particular")
    for pid in children:
        os.kill(pid, signal.SIGSTOP)
    began = time.monotonic()
    try:
        with pytest.raises(StoreUnavailable):
            await store.save(turn("meanwhile"))
        took_s = time.monotonic() - began
    finally:
        for pid in children:
            os.kill(pid, signal.SIGCONT)

    await store.save(turn("after"))
    assert await store.get("before", "ada", now=NOW) == turn("before")
    assert took_s < 3 * TIMEOUT_S


@server_test
async def test_a_locked_table_is_given_up_in_time(store: SqlResponseStore, url: str) -> None:
    await store.save(turn("r1"))
    other = await asyncpg.connect(url)
    async with other.transaction():
        await other.execute("LOCK TABLE responses IN ACCESS EXCLUSIVE MODE")
        began = time.monotonic()
        results = await asyncio.gather(
            *(store.save(turn(f"w{n}")) for n in range(20)),
            *(store.get("r1", "ada", now=NOW) for _ in range(20)),
            return_exceptions=True,
        )
        took_s = time.monotonic() - began
    await other.close()

    assert {type(result) for result in results} == {StoreUnavailable}
    assert took_s < 4 * TIMEOUT_S
    await store.save(turn("r2"))
    assert await store.get("r1", "ada", now=NOW) == turn("r1")


@server_test
async def test_all_of_a_tenant_goes_though_another_server_deletes_some_of_it(store: SqlResponseStore, url: str) -> None:
    for n in range(9):
        await store.save(turn(f"r{n}"))
    few = SqlResponseStore(store._database, server="s", batch=3)
    other = await asyncpg.connect(url)
    watcher = await asyncpg.connect(url)
    async with other.transaction():
        await other.execute("DELETE FROM responses WHERE id IN ('r0', 'r1', 'r2')")
        erasing = asyncio.create_task(few.erase("ada"))
        while not await watcher.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
            assert not erasing.done()
    erased = await erasing
    await other.close()
    await watcher.close()

    assert sorted(erased.response_ids) == [f"r{n}" for n in range(3, 9)]
    assert [await store.get(f"r{n}", "ada", now=NOW) for n in range(9)] == [None] * 9


@server_test
async def test_connections_that_another_ended_are_replaced(postgres: PostgresServer, store: SqlResponseStore) -> None:
    await asyncio.gather(*(store.save(turn(f"r{n}")) for n in range(8)))
    postgres.run_sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'particular'")

    rows = await asyncio.gather(*(store.get(f"r{n}", "ada", now=NOW) for n in range(8)))
    assert rows == [turn(f"r{n}") for n in range(8)]
