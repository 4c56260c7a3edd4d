"""Runs over a store that comes and goes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest

from support.holding import HoldingStore
from warmlane.conversation.messages import Message, Role, Text
from warmlane.conversation.turn import Dialect, TurnRequest
from warmlane.errors import StoreUnavailable
from warmlane.store import LoggedEvent, LostRun, ResponseStore, RunLog, StoredTurn, TurnStatus, open_store
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


class Log:
    """A run log whose rows do not change while it is `down`."""

    def __init__(self, log: RunLog) -> None:
        self._log = log
        self.down = False

    async def begin(self, turn: StoredTurn) -> None:
        await self._log.begin(turn)

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
