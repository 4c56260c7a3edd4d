"""Databases of earlier versions, on both kinds of database."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from sqlalchemy.ext.asyncio import create_async_engine

from support.postgres import PostgresServer
from unit.store.turns import NOW, turn
from warmlane.errors import ConfigError
from warmlane.store import open_store
from warmlane.store.migrate import MIGRATIONS, migrate
from warmlane.store.rows import to_columns
from warmlane.store.schema import metadata

FIRST_COLUMNS = (
    "id, tenant, model, previous_response_id, created_at, expires_at, status, instructions, input, outcome, echo, "
    "size_bytes"
)
POSTGRES = pytest.param("postgres", marks=pytest.mark.postgres)


@pytest.fixture(params=["file", POSTGRES])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Of an empty database."""
    if request.param == "file":
        yield f"sqlite+aiosqlite:///{tmp_path / 'warmlane.db'}"
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    yield server.create(f"m{abs(hash(request.node.name)) % 10**8}")


async def on(url: str, work: object) -> object:
    """What a synchronous function makes of a connection in a transaction."""
    engine = create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://"))
    try:
        async with engine.begin() as connection:
            return await connection.run_sync(work)  # type: ignore[arg-type]
    finally:
        await engine.dispose()


def make_first_version(connection: sa.Connection) -> None:
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", MIGRATIONS)
    config.set_main_option("path_separator", "os")
    command.upgrade(config, "0001")
    values = ", ".join(f":{name.strip()}" for name in FIRST_COLUMNS.split(","))
    insert = sa.text(f"INSERT INTO responses ({FIRST_COLUMNS}) VALUES ({values})")
    rows = [turn("a"), turn("b", "a"), turn("c", "b"), turn("d", "b"), turn("orphan", "gone"), turn("e", "orphan")]
    for row in [*rows, turn("stray", "a", tenant="bob")]:
        connection.execute(insert, to_columns(row))


async def test_rows_of_the_first_version_are_found_and_put_in_their_trees(url: str) -> None:
    await on(url, make_first_version)
    store = await open_store(url)

    chain = await store.history("d", "ada", now=NOW)
    assert chain is not None
    assert [t.id for t in chain.turns] == ["a", "b", "d"]
    found = await store.get("c", "ada", now=NOW)
    assert found == turn("c", "b")
    await store.save(turn("f", "d"))
    await store.close()

    def trees(connection: sa.Connection) -> dict[str, str]:
        return {row.id: row.chain for row in connection.execute(sa.text("SELECT id, chain FROM responses"))}

    assert await on(url, trees) == {
        **dict.fromkeys("abcdf", "a"),
        **dict.fromkeys(("orphan", "e"), "orphan"),
        "stray": "stray",
    }


async def test_the_migrations_make_the_declared_schema(url: str) -> None:
    def differences(connection: sa.Connection) -> object:
        migrate(connection)
        return compare_metadata(MigrationContext.configure(connection), metadata)

    assert await on(url, differences) == []


async def test_a_newer_schema_is_refused_and_left_alone(url: str) -> None:
    await (await open_store(url)).close()
    await on(url, lambda c: c.execute(sa.text("UPDATE alembic_version SET version_num = '9999'")))

    with pytest.raises(ConfigError, match=r"newer Warmlane \(schema 9999"):
        await open_store(url)
    assert await on(url, lambda c: c.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()) == "9999"


async def test_a_database_of_something_else_is_refused(url: str) -> None:
    await on(url, lambda c: c.execute(sa.text("CREATE TABLE birds (name TEXT)")))

    with pytest.raises(ConfigError, match="a database of its own"):
        await open_store(url)


async def test_servers_that_start_at_once_make_one_schema(url: str) -> None:
    stores = await asyncio.gather(*(open_store(url) for _ in range(4)))
    await asyncio.gather(*(store.save(turn(f"r{n}")) for n, store in enumerate(stores)))

    assert all([await stores[0].get(f"r{n}", "ada", now=NOW) for n in range(4)])
    for store in stores:
        await store.close()
