"""Responses before they are finished, their event logs, and what becomes of those whose server was killed."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from unit.store.turns import NOW, outcome, turn
from warmlane.conversation.kept import Conversation
from warmlane.store import Continued, LoggedEvent, LostRun, OwnRun, ResponseStore, StoredTurn, TurnStatus, open_store
from warmlane.store.database import Database
from warmlane.store.rows import to_columns
from warmlane.store.runs import LOST_AFTER_S
from warmlane.store.servers import is_alive, this_server
from warmlane.store.sql_runs import SqlRuns
from warmlane.store.sqlite import sqlite_engine

LOST = b'{"code":"lost"}'


def run(response_id: str, *, status: TurnStatus = TurnStatus.QUEUED, tenant: str = "ada") -> StoredTurn:
    return msgspec.structs.replace(turn(response_id, tenant=tenant), outcome=None, status=status)


async def status_of(store: ResponseStore, response_id: str) -> TurnStatus:
    row = await store.get(response_id, "ada", now=NOW)
    assert row is not None
    return row.status


async def test_a_run_can_be_retrieved_from_the_start_and_chained_on_at_its_end(store: ResponseStore) -> None:
    await store.runs.begin(run("r1"))
    assert await store.get("r1", "ada", now=NOW) == run("r1")
    assert await store.history("r1", "ada", now=NOW) is None

    assert await store.runs.set_status("r1", "ada", TurnStatus.IN_PROGRESS)
    assert await status_of(store, "r1") is TurnStatus.IN_PROGRESS

    assert await store.runs.complete(turn("r1"))
    assert await store.get("r1", "ada", now=NOW) == turn("r1")
    assert await store.history("r1", "ada", now=NOW) is not None


async def test_a_run_that_has_ended_stays_as_it_is(store: ResponseStore) -> None:
    await store.runs.begin(run("r1"))
    assert await store.runs.set_status("r1", "ada", TurnStatus.CANCELLED)
    assert not await store.runs.set_status("r1", "ada", TurnStatus.CANCELLED)
    assert not await store.runs.set_status("r1", "ada", TurnStatus.FAILED, error=LOST)
    assert await status_of(store, "r1") is TurnStatus.CANCELLED

    await store.save(turn("r2"))
    assert not await store.runs.set_status("r2", "ada", TurnStatus.CANCELLED)
    assert await status_of(store, "r2") is TurnStatus.COMPLETED


async def test_a_run_that_was_deleted_does_not_come_back(store: ResponseStore) -> None:
    await store.conversations.create(Conversation(id="conv_1", tenant="ada", created_at=NOW, used_at=NOW))
    await store.runs.begin(run("r1"))
    await store.delete("r1", "ada")

    assert not await store.runs.complete(turn("r1"), continued=Continued("conv_1", 0))
    assert await store.get("r1", "ada", now=NOW) is None
    transcript = await store.conversations.read("conv_1", "ada")
    assert transcript is not None
    assert transcript.entries == ()


async def test_a_run_that_was_given_up_stays_failed(store: ResponseStore) -> None:
    await store.runs.begin(run("r1"))
    await store.runs.set_status("r1", "ada", TurnStatus.FAILED, error=LOST)

    assert not await store.runs.complete(turn("r1"))
    row = await store.get("r1", "ada", now=NOW)
    assert row is not None
    assert (row.status, row.error, row.outcome) == (TurnStatus.FAILED, LOST, None)


async def test_a_failed_run_says_why(store: ResponseStore) -> None:
    await store.runs.begin(run("r1"))
    await store.runs.set_status("r1", "ada", TurnStatus.FAILED, error=b'{"code":"x"}')

    row = await store.get("r1", "ada", now=NOW)
    assert row is not None
    assert (row.status, row.error, row.outcome) == (TurnStatus.FAILED, b'{"code":"x"}', None)


async def test_events_are_read_from_where_a_reader_left_off(store: ResponseStore) -> None:
    events = tuple(LoggedEvent(n, f"event {n} \0".encode()) for n in range(7))
    await store.runs.begin(run("r1"))
    assert await store.runs.events("r1", "ada", now=NOW) == ()
    assert await store.runs.append("r1", "ada", events[:3])
    assert await store.runs.append("r1", "ada", events[3:])

    assert await store.runs.events("r1", "ada", now=NOW) == events
    assert await store.runs.events("r1", "ada", now=NOW, after=4) == events[5:]
    assert await store.runs.events("r1", "ada", now=NOW, after=1, limit=2) == events[2:4]
    assert await store.runs.events("r1", "ada", now=NOW, after=6) == ()
    assert await store.runs.complete(turn("r1"))
    assert await store.runs.events("r1", "ada", now=NOW, after=4) == events[5:]


async def test_a_deleted_run_has_no_events_and_takes_none(store: ResponseStore) -> None:
    await store.runs.begin(run("r1"))
    await store.runs.append("r1", "ada", [LoggedEvent(0, b"{}")])
    await store.delete("r1", "ada")

    assert await store.runs.events("r1", "ada", now=NOW) is None
    assert not await store.runs.append("r1", "ada", [LoggedEvent(1, b"{}")])
    await store.runs.begin(run("r1"))
    assert await store.runs.events("r1", "ada", now=NOW) == ()


async def test_events_that_are_added_again_are_there_and_counted_once(store: ResponseStore) -> None:
    events = tuple(LoggedEvent(n, bytes(1000)) for n in range(5))
    await store.runs.begin(run("r1"))
    assert await store.runs.append("r1", "ada", events[:3])
    assert await store.runs.append("r1", "ada", events)
    assert await store.runs.append("r1", "ada", events)

    assert await store.runs.events("r1", "ada", now=NOW) == events
    await store.runs.complete(turn("r1"))
    await store.save(turn("r2", created_at=NOW + 1))
    row_bytes = to_columns(turn("r1"))["size_bytes"]
    assert isinstance(row_bytes, int)
    assert await store.prune(now=NOW, max_bytes=2 * row_bytes + 5000) == ()
    assert await store.prune(now=NOW, max_bytes=2 * row_bytes + 4999) == ("r1",)


async def test_a_foreign_run_is_an_unknown_one(store: ResponseStore) -> None:
    await store.runs.begin(run("r1"))
    await store.runs.append("r1", "ada", [LoggedEvent(0, b"{}")])

    assert await store.runs.events("r1", "bob", now=NOW) is None
    assert not await store.runs.append("r1", "bob", [LoggedEvent(1, b"{}")])
    assert not await store.runs.set_status("r1", "bob", TurnStatus.CANCELLED)
    assert await store.runs.events("r1", "ada", now=NOW) == (LoggedEvent(0, b"{}"),)


async def test_an_expired_runs_events_are_gone(store: ResponseStore) -> None:
    await store.runs.begin(run("r1"))
    assert await store.runs.events("r1", "ada", now=NOW + 101) is None


async def test_a_living_servers_runs_are_left_alone(store: ResponseStore) -> None:
    await store.runs.begin(run("r1"))

    assert await store.runs.tend(now=NOW + 10 * LOST_AFTER_S, error=LOST) == ()
    assert await status_of(store, "r1") is TurnStatus.QUEUED


BEGINNER = """
import asyncio, sys
from unit.store.test_runs import run
from unit.store.turns import turn
from warmlane.store import TurnStatus, open_store

async def main(path):
    store = await open_store(path)
    await store.runs.begin(run("r1", status=TurnStatus.IN_PROGRESS))
    await store.save(turn("r2"))
    print("ready", flush=True)
    await asyncio.Event().wait()

asyncio.run(main(sys.argv[1]))
"""


async def test_a_killed_servers_runs_have_failed_after_the_restart(tmp_path: Path) -> None:
    path = str(tmp_path / "warmlane.db")
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", BEGINNER, path),
        stdout=asyncio.subprocess.PIPE,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert server.stdout is not None
    assert await server.stdout.readline() == b"ready\n"
    store = await open_store(path)
    assert await store.runs.tend(now=NOW, error=LOST) == ()
    server.kill()
    await server.wait()
    assert await store.runs.tend(now=NOW, error=LOST) == (LostRun("r1", "ada"),)

    row = await store.get("r1", "ada", now=NOW)
    assert row is not None
    assert (row.status, row.error) == (TurnStatus.FAILED, LOST)
    assert await status_of(store, "r2") is TurnStatus.COMPLETED
    assert await store.runs.tend(now=NOW, error=LOST) == ()
    await store.close()


def test_a_server_of_another_machine_is_not_judged_by_its_process_id() -> None:
    mine = this_server()
    machine, _, process = mine.partition("/")

    assert is_alive(mine) is True
    assert is_alive(f"{machine}/999999999/1/ab") is False
    assert is_alive(f"{machine}/{process.partition('/')[0]}/1/ab") is False
    assert is_alive(f"elsewhere/{process}") is None
    assert this_server() != mine


@dataclass(frozen=True)
class TwoServers:
    """Two that share a store, as if on two machines. `r1` is a run of the one elsewhere."""

    here: ResponseStore
    elsewhere: SqlRuns

    async def listen(self, start_s: float, end_s: float) -> list[tuple[LostRun, ...]]:
        """What is lost of all from one second to another, as the one here sees it every 30 s."""
        times = [start_s + 30 * n for n in range(int((end_s - start_s) // 30) + 1)]
        return [await self.here.runs.tend(now=NOW + at, error=LOST) for at in times]


@pytest.fixture
async def two(tmp_path: Path) -> AsyncIterator[TwoServers]:
    path = str(tmp_path / "warmlane.db")
    store = await open_store(path)
    far = Database(sqlite_engine(path, timeout_s=5), timeout_s=5, one_writer=True)
    elsewhere = SqlRuns(far, server="elsewhere/1/1/ab")
    await elsewhere.begin(run("r1"))
    yield TwoServers(store, elsewhere)
    await far.close()
    await store.close()


async def test_a_silent_server_elsewhere_is_lost_after_a_while(two: TwoServers) -> None:
    assert await two.listen(0, 90) == [()] * 4
    await two.elsewhere.tend(now=NOW + 90, error=LOST)
    assert await two.listen(120, 210) == [()] * 4
    assert await two.listen(240, 240) == [(LostRun("r1", "ada"),)]


@pytest.mark.parametrize("ahead_s", [-1e6, 1e6])
async def test_a_server_whose_clock_is_wrong_is_not_lost_until_it_is_silent(two: TwoServers, ahead_s: float) -> None:
    for at in range(0, 600, 30):
        await two.elsewhere.tend(now=NOW + ahead_s + at, error=LOST)
        assert await two.listen(at, at) == [()]
    assert await two.listen(600, 690) == [(), (), (), (LostRun("r1", "ada"),)]


async def test_a_server_that_was_away_itself_blames_no_other(two: TwoServers) -> None:
    assert await two.listen(0, 60) == [()] * 3
    assert await two.listen(10_000, 10_060) == [()] * 3
    assert await two.listen(5_000, 5_060) == [()] * 3


def test_an_outcome_is_what_ends_a_run_well() -> None:
    assert run("r1").output is None
    assert turn("r1").output == outcome("answer r1").message
    assert [s for s in TurnStatus if not s.ended] == [TurnStatus.QUEUED, TurnStatus.IN_PROGRESS]


async def test_a_server_knows_its_runs_and_which_of_them_are_to_stop(store: ResponseStore) -> None:
    await store.runs.begin(run("r1"))
    await store.runs.begin(run("r2", tenant="bob"))
    await store.save(turn("r3"))
    assert not await store.runs.ask_to_cancel("r2", "ada")
    assert await store.runs.ask_to_cancel("r2", "bob")
    assert await store.runs.ask_to_cancel("r2", "bob")

    assert set(await store.runs.mine()) == {OwnRun("r1", "ada", False), OwnRun("r2", "bob", True)}
    await store.runs.complete(turn("r2", tenant="bob"))
    assert await store.runs.mine() == (OwnRun("r1", "ada", False),)
    assert not await store.runs.ask_to_cancel("r2", "bob")
    assert not await store.runs.ask_to_cancel("r3", "ada")


async def test_only_a_run_that_has_not_ended_can_be_withdrawn(store: ResponseStore) -> None:
    await store.runs.begin(run("r1"))
    await store.runs.append("r1", "ada", [LoggedEvent(0, b"{}")])
    await store.runs.begin(run("r2"))
    await store.runs.set_status("r2", "ada", TurnStatus.CANCELLED)
    await store.save(turn("r3"))

    assert not await store.runs.withdraw("r1", "bob")
    assert [await store.runs.withdraw(id, "ada") for id in ("r1", "r2", "r3", "r4")] == [True, False, False, False]
    assert await store.get("r1", "ada", now=NOW) is None
    assert await store.runs.events("r1", "ada", now=NOW) is None
    assert await status_of(store, "r2") is TurnStatus.CANCELLED


async def test_another_servers_run_is_not_mine_and_can_be_asked_to_stop(tmp_path: Path) -> None:
    path = str(tmp_path / "warmlane.db")
    here, there = await open_store(path), await open_store(path)
    await there.runs.begin(run("r1"))

    assert await here.runs.mine() == ()
    assert await here.runs.ask_to_cancel("r1", "ada")
    assert await there.runs.mine() == (OwnRun("r1", "ada", True),)
    await here.close()
    await there.close()
