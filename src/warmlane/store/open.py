"""Opening a store from what the user wrote after `--store`."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Final

import sqlalchemy as sa

from warmlane.errors import ConfigError
from warmlane.store.migrate import migrate
from warmlane.store.sql import WRITES, SqlResponseStore
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
        raise ConfigError(f"No store is known for {scheme}:// URLs. Give --store sqlite+aiosqlite:///PATH or a path.")
    try:
        database = sa.make_url(url).database
    except sa.exc.ArgumentError:
        raise ConfigError(f"{url!r} is not a store URL. Write --store sqlite+aiosqlite:///PATH.") from None
    if database == MEMORY:
        return MEMORY
    if not database:
        raise ConfigError(f"{url!r} names no file. Write --store sqlite+aiosqlite:///PATH, or memory: to keep nothing.")
    return str(Path(database).expanduser())


def key_file_of(url: str) -> Path | None:
    """Where the server's secret is kept for a store: beside its file, so that restarts agree on domains; None in
    memory. Raises `ConfigError` like `sqlite_database`."""
    database = sqlite_database(url)
    return None if database == MEMORY else Path(database + ".key")


async def open_store(url: str, *, timeout_s: float = STORE_TIMEOUT_S) -> SqlResponseStore:
    """Open or create the store, bringing its schema up to date; an existing one is copied first.

    `timeout_s` bounds every later operation. Raises `ConfigError` if it cannot be used.
    """
    database = sqlite_database(url)
    in_memory = database == MEMORY
    if not in_memory:
        prepare_file(Path(database))
    engine = sqlite_engine(database, timeout_s=timeout_s)
    copy = None if in_memory else functools.partial(back_up, Path(database))
    try:
        async with engine.execution_options(**{WRITES: True}).begin() as connection:
            await connection.run_sync(functools.partial(migrate, back_up=copy))
    except sa.exc.SQLAlchemyError as error:
        await engine.dispose()
        reason = error.orig if isinstance(error, sa.exc.DBAPIError) else error
        raise ConfigError(
            f"The response store {database!r} cannot be opened: {reason}. Give --store another path."
        ) from error
    except BaseException:
        await engine.dispose()
        raise
    return SqlResponseStore(engine, timeout_s=timeout_s, one_writer=True)
