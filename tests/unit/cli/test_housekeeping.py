"""Chores, some of which fail."""

from __future__ import annotations

import pytest

from support.holding import HoldingStore
from support.spine import rig
from warmlane.cli.housekeeping import Housekeeper
from warmlane.errors import StoreUnavailable
from warmlane.store import ResponseStore
from warmlane.turns.runs import StoredRuns


class Store(HoldingStore):
    """Its pruning fails with `hindrance`."""

    hindrance: Exception | None = None
    pruned = 0

    async def prune(self, *, now: float, max_bytes: int | None = None) -> tuple[str, ...]:
        self.pruned += 1
        if self.hindrance is not None:
            raise self.hindrance
        return await super().prune(now=now, max_bytes=max_bytes)


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
