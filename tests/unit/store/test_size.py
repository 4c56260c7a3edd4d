"""A store that is too large gives up whole conversations, those used the longest ago first."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import sqlalchemy as sa

from unit.store.turns import NOW, turn
from warmlane.conversation.kept import Conversation, Entry
from warmlane.conversation.messages import Message, Role, Text
from warmlane.store import InUse, LoggedEvent, ResponseStore, StoredTurn, TurnStatus, open_store
from warmlane.store.base import HELD_S
from warmlane.store.database import Database
from warmlane.store.dropping import BATCH_BYTES
from warmlane.store.rows import to_columns
from warmlane.store.sql import SqlResponseStore
from warmlane.store.sqlite import sqlite_engine

SAID = "x" * 1000


def bytes_of(n: int) -> int:
    size = to_columns(turn("r00", said=SAID))["size_bytes"]
    assert isinstance(size, int)
    return n * size


async def save_chain(store: ResponseStore, *ids: str, start_s: float, parent: str | None = None) -> None:
    for n, response_id in enumerate(ids):
        await store.save(turn(response_id, parent, said=SAID, created_at=NOW + start_s + n, expires_at=NOW + 10_000))
        parent = response_id


def run(response_id: str, parent: str | None = None, *, expires_at: float) -> StoredTurn:
    ended = turn(response_id, parent, created_at=NOW + 1, expires_at=expires_at)
    return msgspec.structs.replace(ended, outcome=None, status=TurnStatus.QUEUED)


async def found(store: ResponseStore, *ids: str) -> list[str]:
    return [i for i in ids if await store.get(i, "ada", now=NOW) is not None]


async def test_a_long_conversation_that_is_still_used_keeps_its_oldest_turns(store: ResponseStore) -> None:
    await save_chain(store, "a00", "a01", "a02", start_s=0)
    await save_chain(store, "b00", "b01", "b02", start_s=10)
    await save_chain(store, "a03", parent="a02", start_s=20)

    gone = await store.prune(now=NOW, max_bytes=bytes_of(5))

    assert sorted(gone) == ["b00", "b01", "b02"]
    chain = await store.history("a03", "ada", now=NOW)
    assert chain is not None
    assert [t.id for t in chain.turns] == ["a00", "a01", "a02", "a03"]


async def test_a_fork_goes_with_its_trunk_or_stays_with_it(store: ResponseStore) -> None:
    await save_chain(store, "a00", "a01", start_s=0)
    await save_chain(store, "a02", parent="a00", start_s=5)
    await save_chain(store, "b00", start_s=3)

    assert sorted(await store.prune(now=NOW, max_bytes=bytes_of(3))) == ["b00"]
    assert await store.prune(now=NOW, max_bytes=bytes_of(3)) == ()
    await save_chain(store, "c00", start_s=9)
    assert sorted(await store.prune(now=NOW, max_bytes=bytes_of(3))) == ["a00", "a01", "a02"]


async def test_no_conversation_is_left_in_part(store: ResponseStore) -> None:
    for c in range(20):
        await save_chain(store, *(f"{c:02}.{n}" for n in range(1 + c % 4)), start_s=10 * c)

    await store.prune(now=NOW, max_bytes=bytes_of(17))

    left = [c for c in range(20) if await found(store, *(f"{c:02}.{n}" for n in range(4)))]
    assert left == list(range(min(left), 20))
    for c in left:
        assert await store.history(f"{c:02}.{c % 4}", "ada", now=NOW) is not None


async def test_the_conversation_used_last_stays_however_large(store: ResponseStore) -> None:
    await save_chain(store, "old", start_s=0)
    await save_chain(store, "new", start_s=1)

    assert await store.prune(now=NOW, max_bytes=10) == ("old",)
    assert await found(store, "old", "new") == ["new"]


async def test_conversation_objects_count_and_go_as_well(store: ResponseStore) -> None:
    message = Message(Role.USER, (Text(SAID * 3),))
    for name, used_at in (("conv_old", NOW), ("conv_new", NOW + 50)):
        conversation = Conversation(id=name, tenant="ada", created_at=NOW, used_at=used_at)
        await store.conversations.create(conversation, [Entry("e1", message)])
    await save_chain(store, "r00", start_s=60)

    assert await store.prune(now=NOW, max_bytes=bytes_of(4)) == ()
    assert await store.conversations.get("conv_old", "ada") is None
    assert await store.conversations.get("conv_new", "ada") is not None
    assert await found(store, "r00") == ["r00"]


async def test_a_runs_events_count(store: ResponseStore) -> None:
    await save_chain(store, "a00", start_s=0)
    await save_chain(store, "b00", start_s=1)
    await store.runs.append("a00", "ada", [LoggedEvent(n, bytes(1000)) for n in range(10)])

    assert await store.prune(now=NOW, max_bytes=bytes_of(3)) == ("a00",)


async def test_a_run_that_has_not_ended_stays_with_its_conversation(store: ResponseStore) -> None:
    await save_chain(store, "a00", start_s=0)
    await store.runs.begin(run("a01", "a00", expires_at=NOW + 20))
    await save_chain(store, "b00", start_s=10)
    await save_chain(store, "c00", start_s=11)

    assert sorted(await store.prune(now=NOW + 30, max_bytes=10)) == ["b00", "c00"]
    assert await store.runs.complete(turn("a01", "a00"))
    assert await store.history("a01", "ada", now=NOW) is not None
    await save_chain(store, "d00", start_s=40)
    assert sorted(await store.prune(now=NOW, max_bytes=10)) == ["a00", "a01"]


async def test_what_turns_rely_on_stays_though_it_is_the_oldest(store: ResponseStore) -> None:
    await save_chain(store, "a00", "a01", start_s=0)
    await save_chain(store, "a02", parent="a00", start_s=1)
    for name in ("conv_a", "conv_b"):
        await store.conversations.create(Conversation(id=name, tenant="ada", created_at=NOW, used_at=NOW))
    await save_chain(store, "b00", start_s=2)
    await save_chain(store, "c00", start_s=3)
    used = InUse([("a01", "ada"), ("b00", "bob")], [("conv_a", "ada"), ("conv_b", "bob")])

    assert await store.prune(now=NOW, max_bytes=1, in_use=lambda: used) == ("b00",)
    assert await found(store, "a00", "a01", "a02", "c00") == ["a00", "a01", "a02", "c00"]
    assert await store.conversations.get("conv_a", "ada") is not None
    assert await store.conversations.get("conv_b", "ada") is None
    assert sorted(await store.prune(now=NOW, max_bytes=1)) == ["a00", "a01", "a02"]
    assert await store.conversations.get("conv_a", "ada") is None


async def test_a_conversation_in_use_is_no_other_servers_oldest(store: ResponseStore) -> None:
    for name, used_at in (("conv_a", NOW), ("conv_b", NOW + 1)):
        await store.conversations.create(Conversation(id=name, tenant="ada", created_at=NOW, used_at=used_at))
    await store.prune(now=NOW + 2, in_use=lambda: InUse(conversations=[("conv_a", "ada")]))

    await store.prune(now=NOW + 3, max_bytes=1)
    assert await store.conversations.get("conv_a", "ada") is not None
    assert await store.conversations.get("conv_b", "ada") is None


async def test_a_run_expires_once_it_has_ended(store: ResponseStore) -> None:
    await store.runs.begin(run("r1", expires_at=NOW + 20))
    assert await store.prune(now=NOW + 21 + HELD_S) == ()
    await store.runs.set_status("r1", "ada", TurnStatus.CANCELLED)
    assert await store.prune(now=NOW + 20 + HELD_S) == ()
    assert await store.prune(now=NOW + 21 + HELD_S) == ("r1",)


async def test_what_a_failed_run_leaves_counts(store: ResponseStore) -> None:
    await store.runs.begin(run("r1", expires_at=NOW + 10_000))
    await store.runs.set_status("r1", "ada", TurnStatus.FAILED, error=bytes(10_000))
    await save_chain(store, "b00", start_s=10)
    assert await store.prune(now=NOW, max_bytes=bytes_of(1) + 9_000) == ("r1",)


@asynccontextmanager
async def small_store(
    path: Path, *, batch: int, batch_bytes: int = BATCH_BYTES
) -> AsyncIterator[tuple[SqlResponseStore, list[tuple[str, int]]]]:
    """A store that deletes little at a time, and the table and the number of bound values of each deletion; `kept` is
    the table of rows whose expiry moves."""
    await (await open_store(str(path))).close()
    engine = sqlite_engine(str(path), timeout_s=5)
    deletions: list[tuple[str, int]] = []

    @sa.event.listens_for(engine.sync_engine, "before_cursor_execute")
    def note(_connection: object, _cursor: object, statement: str, values: Sequence[object], *_rest: object) -> None:
        if statement.startswith("DELETE FROM "):
            deletions.append((statement.split()[2], len(values)))
        elif statement.startswith("UPDATE responses SET expires_at="):
            deletions.append(("kept", len(values)))

    database = Database(engine, timeout_s=5, one_writer=True)
    store = SqlResponseStore(database, server="s", batch=batch, batch_bytes=batch_bytes)
    yield store, deletions
    await store.close()


async def test_more_than_one_transaction_deletes_all_goes(tmp_path: Path) -> None:
    async with small_store(tmp_path / "warmlane.db", batch=3) as (store, deletions):
        for n in range(14):
            await store.save(turn(f"r{n}", expires_at=NOW + n % 2))
            await store.save(turn(f"s{n}", tenant="bob", created_at=NOW + n, expires_at=NOW + 1000))

        assert len(await store.prune(now=NOW + 0.5 + HELD_S)) == 7
        assert len((await store.erase("ada")).response_ids) == 7
        assert len(await store.prune(now=NOW, max_bytes=1)) == 13
        assert (await store.erase("bob")).response_ids == ("s13",)
    assert max(values for _, values in deletions) == 3


async def test_one_transaction_deletes_no_more_than_so_many_bytes(tmp_path: Path) -> None:
    async with small_store(tmp_path / "warmlane.db", batch=100, batch_bytes=bytes_of(3)) as (store, deletions):
        await save_chain(store, *(f"a{n:02}" for n in range(10)), start_s=0)

        assert len((await store.erase("ada")).response_ids) == 10
    assert deletions == [("responses", 3), ("responses", 3), ("responses", 3), ("responses", 1)]


async def test_what_is_too_large_for_one_transaction_goes_in_parts(tmp_path: Path) -> None:
    async with small_store(tmp_path / "warmlane.db", batch=4, batch_bytes=3000) as (store, deletions):
        await save_chain(store, "a00", start_s=0)
        await store.runs.append("a00", "ada", [LoggedEvent(n, bytes(1000)) for n in range(10)])
        entries = [Entry(f"e{n}", Message(Role.USER, (Text("small"),))) for n in range(90)]
        conversation = Conversation(id="conv_1", tenant="ada", created_at=NOW, used_at=NOW, metadata=bytes(3000))
        await store.conversations.create(conversation, entries)

        erased = await store.erase("ada")

    assert (erased.response_ids, erased.conversation_ids) == (("a00",), ("conv_1",))
    parts = [values - 1 for table, values in deletions if table == "response_events"]
    assert parts == [3, 3, 3, 1]
    parts = [values - 1 for table, values in deletions if table == "conversation_entries"]
    assert (sum(parts), max(parts)) == (90, 4)
    assert [table for table, _ in deletions if table in ("responses", "conversations")] == [
        "responses",
        "conversations",
    ]


async def test_one_response_is_deleted_out_of_a_long_chain_and_many_forks_alone(tmp_path: Path) -> None:
    async with small_store(tmp_path / "warmlane.db", batch=50) as (store, deletions):
        await save_chain(store, *(f"a{n:03}" for n in range(300)), start_s=0)
        for n in range(200):
            await store.save(turn(f"f{n:03}", "a150", expires_at=NOW + 1000))

        assert await store.delete("a150", "ada")

        assert deletions == [("responses", 1)]
        assert await found(store, "a149", "a151", "f000", "f199") == ["a149", "a151", "f000", "f199"]
        assert [await store.history(tip, "ada", now=NOW) for tip in ("a299", "f007")] == [None, None]
        assert await store.history("a149", "ada", now=NOW) is not None
        # What lost its beginning goes at its own time, in as many transactions as it takes.
        assert len(await store.prune(now=NOW + 20_000)) == 499


async def test_a_response_with_a_long_log_is_deleted_in_parts(tmp_path: Path) -> None:
    async with small_store(tmp_path / "warmlane.db", batch=100, batch_bytes=3000) as (store, deletions):
        await save_chain(store, "a00", "a01", start_s=0)
        await store.runs.append("a00", "ada", [LoggedEvent(n, bytes(1000)) for n in range(10)])

        assert await store.delete("a00", "ada")
        assert not await store.delete("a00", "ada")
        assert await found(store, "a00", "a01") == ["a01"]
    assert [values - 1 for table, values in deletions if table == "response_events"] == [3, 3, 3, 1]


async def test_what_fails_behind_the_deletion_of_a_response_does_not_hide_it(tmp_path: Path) -> None:
    async with small_store(tmp_path / "warmlane.db", batch=100) as (store, _):
        await save_chain(store, "a00", start_s=0)
        engine = sqlite_engine(str(tmp_path / "warmlane.db"), timeout_s=5)
        gone = False

        @sa.event.listens_for(engine.sync_engine, "before_cursor_execute")
        def fail(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
            nonlocal gone
            if gone and statement.startswith(("SELECT", "DELETE")):
                raise sa.exc.OperationalError(statement, None, OSError("the disk is gone"))
            gone = gone or statement.startswith("DELETE FROM responses")

        failing = SqlResponseStore(Database(engine, timeout_s=5, one_writer=True), server="s")

        assert await failing.delete("a00", "ada")
        assert gone
        await failing.close()
