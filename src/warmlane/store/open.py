"""Opening a store from what the user wrote after `--store`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Final

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine

from warmlane.errors import ConfigError
from warmlane.store import postgres
from warmlane.store.database import WRITES, Database
from warmlane.store.migrate import migrate
from warmlane.store.servers import this_server
from warmlane.store.sql import SqlResponseStore
from warmlane.store.sqlite import MEMORY, back_up, prepare_file, sqlite_engine

STORE_TIMEOUT_S: Final = 5.0

_SQLITE_SCHEMES: Final = ("sqlite+aiosqlite", "sqlite")


def sqlite_database(url: str) -> str:
    """The file a store URL names, or `MEMORY`.

    `memory:`, `sqlite+aiosqlite:///PATH`, `sqlite:///PATH` or a plain path, in which `~` is the home folder. Raises
    `ConfigError` for anything else.
    """
    if url in ("memory:", MEMORY):
        return MEMORY
    scheme, separator, _ = url.partition("://")
    if not separator:
        if not url.strip():
            raise ConfigError("The store's path is empty. Give --store a path, or memory: to keep nothing.")
        return str(Path(url).expanduser())
    if scheme not in _SQLITE_SCHEMES:
        raise ConfigError(
            f"No store is known for {scheme}:// URLs. Give --store a path, sqlite:///PATH or postgresql://…."
        )
    try:
        database = sa.make_url(url).database
    except sa.exc.ArgumentError:
        raise ConfigError(f"{url!r} is not a store URL. Write --store sqlite+aiosqlite:///PATH.") from None
    if database == MEMORY:
        return MEMORY
    if not database:
        raise ConfigError(f"{url!r} names no file. Write --store sqlite+aiosqlite:///PATH, or memory: to keep nothing.")
    return str(Path(database).expanduser())


def is_postgres(url: str) -> bool:
    """Whether `--store` names a PostgreSQL database."""
    return url.partition("://")[0] in postgres.SCHEMES and "://" in url


def key_file_of(url: str) -> Path | None:
    """Where the server's secret is kept for a store: beside its file, so that restarts agree on domains; None in
    memory and in PostgreSQL. Raises `ConfigError` like `sqlite_database`."""
    if is_postgres(url):
        return None
    database = sqlite_database(url)
    return None if database == MEMORY else Path(database + ".key")


async def open_store(url: str, *, timeout_s: float = STORE_TIMEOUT_S) -> SqlResponseStore:
    """Open or create the store, bringing its schema up to date; an existing file is copied first.

    `timeout_s` bounds every later operation. Raises `ConfigError` if it cannot be used.
    """
    database = await (_open_postgres if is_postgres(url) else _open_sqlite)(url, timeout_s)
    return SqlResponseStore(database, server=this_server())


async def _open_sqlite(url: str, timeout_s: float) -> Database:
    database = sqlite_database(url)
    in_memory = database == MEMORY
    if not in_memory:
        prepare_file(Path(database))
    engine = sqlite_engine(database, timeout_s=timeout_s)
    copy = None if in_memory else functools.partial(back_up, Path(database))
    try:
        await _migrate(engine, functools.partial(migrate, back_up=copy))
    except (sa.exc.SQLAlchemyError, OSError) as error:
        await engine.dispose()
        raise ConfigError(
            f"The response store {database!r} cannot be opened: {_reason(error)}. Give --store another path."
        ) from error
    except BaseException:
        await engine.dispose()
        raise
    return Database(engine, timeout_s=timeout_s, one_writer=True)


async def _open_postgres(text: str, timeout_s: float) -> Database:
    url = postgres.postgres_url(text)
    postgres.require_driver()
    migrating = postgres.postgres_engine(url, timeout_s=timeout_s, migrating=True)
    try:
        await _migrate(migrating, _migrate_alone)
    except (sa.exc.SQLAlchemyError, OSError) as error:
        shown = url.render_as_string(hide_password=True)
        raise ConfigError(f"The response store {shown} cannot be opened: {_reason(error)}.") from error
    finally:
        await migrating.dispose()
    return Database(postgres.postgres_engine(url, timeout_s=timeout_s), timeout_s=timeout_s, one_writer=False)


def _migrate_alone(connection: sa.Connection) -> None:
    postgres.lock_migrations(connection)
    migrate(connection)


async def _migrate(engine: AsyncEngine, run: Callable[[sa.Connection], None]) -> None:
    async with engine.execution_options(**{WRITES: True}).begin() as connection:
        await connection.run_sync(run)


def _reason(error: sa.exc.SQLAlchemyError | OSError) -> str:
    """What a person at the terminal is told, in one line."""
    if isinstance(error, TimeoutError):
        return "it does not answer"
    reason = error.orig if isinstance(error, sa.exc.DBAPIError) and error.orig is not None else error
    # A driver's wrapper puts the class of the error it wraps before its text.
    return str(reason).rpartition(">: ")[2].strip().rstrip(".") or type(reason).__name__
