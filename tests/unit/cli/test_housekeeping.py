"""Chores, some of which fail."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.holding import HoldingStore
from support.spine import read, rig
from warmlane.cli.housekeeping import Housekeeper
from warmlane.conversation.events import Failed
from warmlane.errors import StoreUnavailable
from warmlane.store import InUse, ResponseStore
from warmlane.turns.cancel import TurnCancelled
from warmlane.turns.runs import StoredRuns


class Store(HoldingStore):
    """Its pruning fails with `hindrance`."""

    hindrance: Exception | None = None
    pruned = 0

    async def prune(
        self, *, now: float, max_bytes: int | None = None, in_use: Callable[[], InUse] = InUse
    ) -> tuple[str, ...]:
        self.pruned += 1
        if self.hindrance is not None:
            raise self.hindrance
        return await super().prune(now=now, max_bytes=max_bytes, in_use=in_use)


@pytest.mark.parametrize("hindrance", [StoreUnavailable("away"), RuntimeError("a bug")])
async def test_a_chore_that_fails_does_not_end_housekeeping(hindrance: Exception) -> None:
    stores: list[Store] = []

    def wrapped(store: ResponseStore) -> ResponseStore:
        stores.append(Store(store))
        return stores[0]

    async with rig(wrap_store=wrapped) as r:
        keeper = Housekeeper(r.host, r.store, r.spine, StoredRuns(r.store, unix_now=lambda: 0.0), max_bytes=None)
        stores[0].hindrance = hindrance
        await keeper.once()
        stores[0].hindrance = None
        await keeper.once()
        assert stores[0].pruned == 2


async def test_a_run_that_another_server_was_asked_to_cancel_is_stopped() -> None:
    async with rig() as r:
        runs = StoredRuns(r.store, unix_now=lambda: 0.0)
        keeper = Housekeeper(r.host, r.store, r.spine, runs, max_bytes=None)
        asked = [r.ask("SLOW:1000 " + "x" * 500, background=True) for _ in range(2)]
        for request in asked:
            await runs.begin(request)
        streams = [r.start(request) for request in asked]
        for stream in streams:
            await anext(stream)
        await r.store.runs.ask_to_cancel(asked[1].response_id, "")
        await keeper.heed()

        last = (await read(streams[1]))[-1]
        assert isinstance(last, Failed)
        assert isinstance(last.error, TurnCancelled)
        assert r.spine.cancel(asked[0].response_id, "")
        assert isinstance((await read(streams[0]))[-1], Failed)
