"""The database file: who may read it, which schema it has, and what survives a kill."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.engine.interfaces import DBAPIConnection

import warmlane.store.migrations
from unit.store.turns import NOW, turn
from warmlane.errors import ConfigError, StoreUnavailable
from warmlane.store import open_store
from warmlane.store.database import Database
from warmlane.store.migrate import migrate
from warmlane.store.open import sqlite_database
from warmlane.store.sql import SqlResponseStore
from warmlane.store.sqlite import back_up, sqlite_engine


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def backups(folder: Path) -> list[Path]:
    return list(folder.glob("*.backup-*"))


async def test_only_this_user_reads_the_files(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "warmlane.db"
    store = await open_store(str(path))
    await store.save(turn("r1"))

    assert mode_of(path.parent) == mode_of(path.parent.parent) == 0o700
    names = sorted(p.name for p in path.parent.iterdir())
    assert names == ["warmlane.db", "warmlane.db-shm", "warmlane.db-wal"]
    assert {mode_of(p) for p in path.parent.iterdir()} == {0o600}
    await store.close()


async def test_a_file_that_was_open_to_others_is_closed_to_them(tmp_path: Path) -> None:
    path = tmp_path / "warmlane.db"
    path.touch(0o644)
    folder_mode = mode_of(tmp_path)

    await (await open_store(str(path))).close()

    assert mode_of(path) == 0o600
    assert mode_of(tmp_path) == folder_mode


async def test_rows_are_there_after_reopening(tmp_path: Path) -> None:
    path = str(tmp_path / "warmlane.db")
    store = await open_store(path)
    await store.save(turn("r1"))
    await store.close()

    again = await open_store(f"sqlite+aiosqlite:///{path}")
    assert await again.get("r1", "ada", now=NOW) == turn("r1")
    await again.close()
    assert backups(tmp_path) == []


@pytest.mark.parametrize(
    ("url", "database"),
    [
        ("memory:", ":memory:"),
        ("sqlite+aiosqlite:///:memory:", ":memory:"),
        ("sqlite+aiosqlite:////var/lib/w.db", "/var/lib/w.db"),
        ("sqlite:///relative/w.db", "relative/w.db"),
        ("w.db", "w.db"),
        ("~/w.db", str(Path.home() / "w.db")),
    ],
)
def test_what_a_store_url_names(url: str, database: str) -> None:
    assert sqlite_database(url) == database


@pytest.mark.parametrize("url", ["mysql://localhost/w", "", "  ", "sqlite+aiosqlite://", "sqlite:///"])
def test_a_url_of_no_known_store_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="--store"):
        sqlite_database(url)


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("these are notes, not a database\n" * 100)

    with pytest.raises(ConfigError, match="--store"):
        await open_store(str(path))
    assert path.read_text().startswith("these are notes")


async def test_a_folder_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    for path in (tmp_path, tmp_path / "file" / "warmlane.db"):
        with pytest.raises(ConfigError, match="--store"):
            await open_store(str(path))


async def test_an_older_schema_is_copied_before_it_is_changed(tmp_path: Path) -> None:
    path = tmp_path / "warmlane.db"
    store = await open_store(str(path))
    await store.save(turn("r1"))
    await store.close()
    scripts = tmp_path / "migrations"
    shutil.copytree(Path(warmlane.store.migrations.__file__).parent, scripts)
    (scripts / "versions" / "r9001_next.py").write_text(
        'from alembic import op\nrevision = "9001"\ndown_revision = "0003"\n'
        'def upgrade(): op.execute("ALTER TABLE responses ADD COLUMN extra TEXT")\n'
    )

    engine = sa.create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        migrate(connection, back_up=partial(back_up, path), scripts=str(scripts))
    engine.dispose()

    copy = tmp_path / "warmlane.db.backup-0003"
    assert mode_of(copy) == 0o600
    with sqlite3.connect(copy) as old, sqlite3.connect(path) as new:
        assert old.execute("SELECT id FROM responses").fetchall() == [("r1",)]
        assert old.execute("SELECT version_num FROM alembic_version").fetchall() == [("0003",)]
        assert new.execute("SELECT id, extra FROM responses").fetchall() == [("r1", None)]


async def test_a_locked_database_gives_unavailable_within_the_bound(tmp_path: Path) -> None:
    path = tmp_path / "warmlane.db"
    store = await open_store(str(path), timeout_s=1.5)
    await store.save(turn("r1"))
    with sqlite3.connect(path, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        with pytest.raises(StoreUnavailable, match="The response store"):
            await store.save(turn("r2"))
        took_s = time.monotonic() - began
        # A write-ahead log never makes readers wait.
        assert await store.get("r1", "ada", now=NOW) == turn("r1")
        other.execute("ROLLBACK")
    other.close()

    assert took_s < 6
    await store.save(turn("r3"))
    assert await store.get("r2", "ada", now=NOW) is None
    await store.close()


async def test_writers_that_wait_behind_a_lock_all_give_up_in_time(tmp_path: Path) -> None:
    path = tmp_path / "warmlane.db"
    store = await open_store(str(path), timeout_s=1.5)
    with sqlite3.connect(path, isolation_level=None) as other:
        other.execute("BEGIN IMMEDIATE")
        began = time.monotonic()
        refused = 0
        for saving in [asyncio.create_task(store.save(turn(f"r{n}"))) for n in range(10)]:
            try:
                await saving
            except StoreUnavailable:
                refused += 1
        took_s = time.monotonic() - began
        other.execute("ROLLBACK")
    other.close()

    assert refused == 10
    assert took_s < 6
    await store.save(turn("later"))
    # What was said to have failed does not come after all.
    assert [n for n in range(10) if await store.get(f"r{n}", "ada", now=NOW)] == []
    await store.close()


async def test_a_full_disk_leaves_no_half_row_and_is_used_again_once_there_is_room(
    tmp_path: Path,
) -> None:
    path = tmp_path / "warmlane.db"
    store = await open_store(str(path))
    await store.save(turn("r1"))
    await store.close()
    engine = sqlite_engine(str(path), timeout_s=5)
    room = [path.stat().st_size // 4096 + 2]

    @sa.event.listens_for(engine.sync_engine, "checkout")
    def bound(connection: DBAPIConnection, *_: object) -> None:
        connection.cursor().execute(f"PRAGMA max_page_count = {room[0]}")

    small = SqlResponseStore(Database(engine, timeout_s=5, one_writer=True), server="s")

    for n in range(3):
        with pytest.raises(StoreUnavailable, match="The response store is full"):
            await small.save(turn(f"big{n}", said="x" * 200_000))
    assert await small.get("r1", "ada", now=NOW) == turn("r1")
    assert await small.get("big0", "ada", now=NOW) is None

    room[0] = 10_000
    await small.save(turn("big0", said="x" * 200_000))
    assert await small.get("big0", "ada", now=NOW) is not None
    await small.close()


WRITER = """
import asyncio, sys
from unit.store.turns import turn
from warmlane.store import open_store
from warmlane.store.database import Database

async def main(path):
    store = await open_store(path)
    for n in range(100_000):
        await store.save(turn(f"r{n}", f"r{n - 1}" if n else None))
        print(n, flush=True)

asyncio.run(main(sys.argv[1]))
"""


def write_until_killed(path: str, rows: int) -> int:
    """Save rows in another process, kill it once `rows` were acknowledged; the number of the last one that was."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", WRITER, path]
    acknowledged = -1
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as writer:
        assert writer.stdout is not None
        for line in writer.stdout:
            acknowledged = int(line)
            if acknowledged == rows:
                writer.send_signal(signal.SIGKILL)
    return acknowledged


async def test_a_killed_writer_loses_no_row_it_acknowledged(tmp_path: Path) -> None:
    path = str(tmp_path / "warmlane.db")
    acknowledged = await asyncio.to_thread(write_until_killed, path, 25)

    store = await open_store(path)
    chain = await store.history(f"r{acknowledged}", "ada", now=NOW)
    await store.close()
    assert acknowledged >= 25
    assert chain is not None
    assert [t.id for t in chain.turns] == [f"r{n}" for n in range(acknowledged + 1)]
