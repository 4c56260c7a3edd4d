"""PostgreSQL as the store of several servers, or of one whose rows are backed up elsewhere."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from typing import Final

import sqlalchemy as sa
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool, ConnectionPoolEntry

from warmlane.errors import ConfigError

SCHEMES: Final = ("postgresql", "postgres", "postgresql+asyncpg")

CONNECTIONS: Final = 5
"""Kept open; as many more are opened under load."""

MIGRATION_LOCK: Final = 0x7761726D6C616E65
"""Of servers that start at once, one migrates: the key of the advisory lock they take, "warmlane" in ASCII."""

_TLS: Final = ("ssl", "sslmode")
_KNOWN_OPTIONS: Final = ("host", "port", *_TLS)


def postgres_url(text: str) -> sa.URL:
    """The URL of `--store`, as the driver takes it. Raises `ConfigError`, whose text never holds the password.

    Of libpq's query options `sslmode`, `host` and `port` are known; what else libpq reads from its environment
    (`PGPASSWORD`, `PGPASSFILE`, `PGSSLROOTCERT` and so on) the driver reads too.
    """
    try:
        url = sa.make_url(text)
    except (sa.exc.ArgumentError, ValueError):
        raise ConfigError("The --store URL cannot be read. Write postgresql://USER@HOST:PORT/DATABASE.") from None
    if not url.database:
        shown = url.render_as_string(hide_password=True)
        raise ConfigError(f"{shown} names no database. Write --store postgresql://USER@HOST:PORT/DATABASE.")
    unknown = sorted(set(url.query) - set(_KNOWN_OPTIONS))
    if unknown:
        raise ConfigError(
            f"The --store URL's option {unknown[0]!r} is not known; known: {', '.join(_KNOWN_OPTIONS)}. "
            "Others can be set in libpq's environment variables."
        )
    tls = next((url.query[name] for name in _TLS if name in url.query), None)
    url = url.set(drivername="postgresql+asyncpg").difference_update_query(_TLS)
    return url if tls is None else url.update_query_dict({"ssl": tls})


def require_driver(find: Callable[[str], object | None] = importlib.util.find_spec) -> None:
    """Raises `ConfigError` if the driver is not installed. `find` looks a module up by its name."""
    if find("asyncpg") is None:
        raise ConfigError("A PostgreSQL store needs a driver: pip install 'warmlane[postgres]'.")


def postgres_engine(url: sa.URL, *, timeout_s: float, migrating: bool = False) -> AsyncEngine:
    """An engine on a database of `postgres_url`.

    Connecting, each statement, and waiting for a lock are bounded by `timeout_s`, on both sides of the connection;
    with `migrating` only connecting is. A connection is tried before it is used, so that a server that came back is
    used at once. Commits wait for the disk even where the server's default is not to: clients are told of a row only
    once it is durable.
    """
    bound_ms = 0 if migrating else max(1, int(timeout_s * 1000))
    engine = create_async_engine(
        url,
        poolclass=AsyncAdaptedQueuePool,
        pool_size=CONNECTIONS,
        max_overflow=CONNECTIONS,
        pool_timeout=timeout_s,
        pool_pre_ping=True,
        connect_args={
            "timeout": timeout_s,
            "command_timeout": None if migrating else timeout_s,
            "server_settings": {
                "application_name": f"warmlane-{os.getpid()}",
                "statement_timeout": str(bound_ms),
                "lock_timeout": str(bound_ms),
                "idle_in_transaction_session_timeout": str(4 * bound_ms),
            },
        },
    )

    @sa.event.listens_for(engine.sync_engine, "connect")
    def insist_on_durability(connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
        cursor = connection.cursor()
        cursor.execute(
            "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
        )
        cursor.close()
        # The driver began a transaction for it, whose end would otherwise take the setting back.
        connection.commit()

    return engine


def lock_migrations(connection: sa.Connection) -> None:
    """Let no other server migrate until this transaction ends."""
    connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})")
