"""Runs over a store that comes and goes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pytest

from support.holding import HoldingStore
from warmlane.conversation.messages import Message, Role, Text
from warmlane.conversation.turn import Dialect, TurnRequest
from warmlane.errors import StoreUnavailable
from warmlane.store import (
    Continued,
    LoggedEvent,
    LostRun,
    OwnRun,
    ResponseStore,
    RunLog,
    StoredTurn,
    TurnStatus,
    open_store,
)
from warmlane.turns.runs import StoredRuns

ASKED = TurnRequest(
    request_id="req_1",
    response_id="resp_1",
    dialect=Dialect.RESPONSES,
    tenant="ann",
    domain=bytes(16),
    model="m",
    input=(Message(Role.USER, (Text("hi"),)),),
    store=True,
)


async def _nothing() -> None:
    pass


class Log:
    """A run log whose rows do not change while it is `down`. One that is `late` says that it took no run, and takes it
    all the same when `arrive` is called. `behind_reading` runs once this server's runs were read."""

    def __init__(self, log: RunLog) -> None:
        self._log = log
        self.down = False
        self.late = False
        self.behind_reading: Callable[[], Awaitable[object]] = _nothing
        self._under_way: list[StoredTurn] = []

    async def begin(self, turn: StoredTurn) -> None:
        if self.late:
            self._under_way.append(turn)
            raise StoreUnavailable("The response store did not answer within 5 s.")
        await self._log.begin(turn)

    async def arrive(self) -> None:
        for turn in self._under_way:
            await self._log.begin(turn)

    async def complete(self, turn: StoredTurn, *, continued: Continued | None = None) -> bool:
        return await self._log.complete(turn, continued=continued)

    async def ask_to_cancel(self, response_id: str, tenant: str) -> bool:
        return await self._log.ask_to_cancel(response_id, tenant)

    async def mine(self) -> tuple[OwnRun, ...]:
        found = await self._log.mine()
        await self.behind_reading()
        return found

    async def withdraw(self, response_id: str, tenant: str) -> bool:
        return await self._log.withdraw(response_id, tenant)

    async def set_status(
        self, response_id: str, tenant: str, status: TurnStatus, *, error: bytes | None = None
    ) -> bool:
        if self.down:
            raise StoreUnavailable("The response store is away.")
        return await self._log.set_status(response_id, tenant, status, error=error)

    async def append(self, response_id: str, tenant: str, events: Sequence[LoggedEvent]) -> bool:
        return await self._log.append(response_id, tenant, events)

    async def events(
        self, response_id: str, tenant: str, *, now: float, after: int = -1, limit: int = 1000
    ) -> tuple[LoggedEvent, ...] | None:
        return await self._log.events(response_id, tenant, now=now, after=after, limit=limit)

    async def tend(self, *, now: float, error: bytes) -> tuple[LostRun, ...]:
        return await self._log.tend(now=now, error=error)


class Store(HoldingStore):
    def __init__(self, store: ResponseStore) -> None:
        super().__init__(store)
        self.log = Log(store.runs)

    @property
    def runs(self) -> RunLog:
        return self.log


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    opened = Store(await open_store("memory:"))
    yield opened
    await opened.close()


async def status(store: Store) -> tuple[str, bytes | None]:
    row = await store.get("resp_1", "ann", now=0.0)
    assert row is not None
    return row.status.value, row.error


async def test_an_end_the_store_did_not_take_is_stored_later(store: Store) -> None:
    runs = StoredRuns(store, unix_now=lambda: 0.0)
    await runs.begin(ASKED)
    await runs.progress("resp_1", "ann")
    store.log.down = True
    with pytest.raises(StoreUnavailable):
        await runs.end("resp_1", "ann", error=b"{}")
    with pytest.raises(StoreUnavailable):
        await runs.settle()
    assert (await status(store))[0] == "in_progress"

    store.log.down = False
    assert await runs.settle() == 1
    assert await status(store) == ("failed", b"{}")
    assert await runs.settle() == 0


async def test_an_end_that_was_stored_is_not_owed(store: Store) -> None:
    runs = StoredRuns(store, unix_now=lambda: 0.0)
    await runs.begin(ASKED)
    await runs.end("resp_1", "ann", cancelled=True)
    assert (await status(store))[0] == "cancelled"
    assert await runs.settle() == 0


async def test_a_run_the_store_took_too_late_is_deleted(store: Store) -> None:
    runs = StoredRuns(store, unix_now=lambda: 0.0)
    store.log.late = True
    with pytest.raises(StoreUnavailable):
        await runs.begin(ASKED)
    assert await runs.settle() == 0
    await store.log.arrive()
    assert (await status(store))[0] == "queued"

    assert await runs.settle() == 1
    assert await store.get("resp_1", "ann", now=0.0) is None
    assert await runs.settle() == 0


async def test_a_run_whose_client_went_while_it_was_begun_is_deleted(store: Store) -> None:
    runs = StoredRuns(store, unix_now=lambda: 0.0)
    beginning = asyncio.create_task(runs.begin(ASKED))
    await asyncio.sleep(0)
    beginning.cancel()
    await asyncio.wait([beginning])
    while await store.get("resp_1", "ann", now=0.0) is None:
        await asyncio.sleep(0.001)

    assert await runs.settle() == 1
    assert await store.get("resp_1", "ann", now=0.0) is None


async def test_a_run_that_is_attended_or_whose_end_is_owed_stays(store: Store) -> None:
    runs = StoredRuns(store, unix_now=lambda: 0.0)
    await runs.begin(ASKED)
    assert await runs.settle() == 0
    assert (await status(store))[0] == "queued"
    store.log.down = True
    with pytest.raises(StoreUnavailable):
        await runs.end("resp_1", "ann", error=b"{}")
    runs.leave("resp_1", "ann")
    store.log.down = False

    assert await runs.settle() == 1
    assert await status(store) == ("failed", b"{}")


async def test_a_run_that_ends_while_the_runs_are_read_stays(store: Store) -> None:
    runs = StoredRuns(store, unix_now=lambda: 0.0)
    await runs.begin(ASKED)

    async def end() -> None:
        await runs.end("resp_1", "ann", error=b"{}")
        runs.leave("resp_1", "ann")

    store.log.behind_reading = end
    assert await runs.settle() == 0
    assert await status(store) == ("failed", b"{}")


async def test_only_what_is_attended_here_and_not_over_is_to_be_cancelled(store: Store) -> None:
    runs = StoredRuns(store, unix_now=lambda: 0.0)
    assert not await runs.ask_to_cancel("resp_1", "ann")
    await runs.begin(ASKED)
    assert await runs.to_cancel() == []
    assert not await runs.ask_to_cancel("resp_1", "bob")
    assert await runs.ask_to_cancel("resp_1", "ann")
    assert await runs.to_cancel() == [("resp_1", "ann")]
    assert await StoredRuns(store, unix_now=lambda: 0.0).to_cancel() == []

    await runs.end("resp_1", "ann", cancelled=True)
    assert await runs.to_cancel() == []
    assert not await runs.ask_to_cancel("resp_1", "ann")
