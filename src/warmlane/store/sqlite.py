"""SQLite as the embedded store: its files, its pragmas, and its backup."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path
from typing import Final

import sqlalchemy as sa
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool, ConnectionPoolEntry

from warmlane.errors import ConfigError
from warmlane.store.database import WRITES

MEMORY: Final = ":memory:"

READERS: Final = 4
"""Connections kept open to a file."""


def sqlite_engine(database: str, *, timeout_s: float) -> AsyncEngine:
    """An engine on a file, or on `MEMORY`.

    The journal is a write-ahead log, so readers never wait for a writer. `synchronous=FULL` syncs the log at every
    commit: with NORMAL a killed process would lose nothing, but a power cut could take the last rows, which clients
    have been told are stored. `busy_timeout` stays below `timeout_s`, so that a lock that is held shows as SQLite's own
    error first. `secure_delete` overwrites deleted rows: they are prompts.
    """
    one_connection = database == MEMORY
    engine = create_async_engine(
        sa.URL.create("sqlite+aiosqlite", database=database),
        poolclass=AsyncAdaptedQueuePool,
        # A database in memory lives in its one connection, which is never given up.
        pool_size=1 if one_connection else READERS,
        max_overflow=0 if one_connection else READERS,
        pool_timeout=timeout_s,
    )
    busy_timeout_ms = int(timeout_s * 800)
    pragmas = (
        f"busy_timeout = {busy_timeout_ms}",
        "journal_mode = WAL",
        "synchronous = FULL",
        "secure_delete = ON",
        "trusted_schema = OFF",
        "foreign_keys = ON",
    )

    @sa.event.listens_for(engine.sync_engine, "connect")
    def configure(connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
        # Transactions are begun below, by hand: the driver's own BEGIN is deferred, and a deferred transaction that
        # turns to writing fails at once when another process wrote in between, without heeding busy_timeout.
        connection.isolation_level = None
        cursor = connection.cursor()
        for pragma in pragmas:
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @sa.event.listens_for(engine.sync_engine, "begin")
    def begin(connection: sa.Connection) -> None:
        writes = connection.get_execution_options().get(WRITES, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def prepare_file(path: Path) -> None:
    """Make the file and its missing folders, for this user alone (0600, 0700).

    SQLite gives its log files the mode of the database. Folders that exist keep theirs. Raises `ConfigError`.
    """
    try:
        _make_folders(path.parent)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        path.chmod(0o600)
        if not os.access(path.parent, os.W_OK | os.X_OK):
            raise PermissionError(13, "Permission denied", str(path.parent))
    except OSError as error:
        raise ConfigError(
            f"The response store {str(path)!r} cannot be written: {error.strerror}. "
            "Give --store a path you may write to, or memory: to keep nothing."
        ) from error


def _make_folders(folder: Path) -> None:
    if folder.is_dir():
        return
    _make_folders(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)


def back_up(path: Path, revision: str) -> Path:
    """Copy the database, log included, beside itself and return the copy's path; it is whole or not there.

    Safe while others have the file open.
    """
    target = path.with_name(f"{path.name}.backup-{revision}")
    partial = path.with_name(f"{target.name}.partial")
    partial.unlink(missing_ok=True)
    os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    with contextlib.closing(sqlite3.connect(path)) as source, contextlib.closing(sqlite3.connect(partial)) as copy:
        source.backup(copy)
    os.replace(partial, target)
    return target
