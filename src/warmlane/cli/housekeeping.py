"""What a server does now and then: warm sessions and rows that have had their time go, lost runs are ended, and runs
that another server was asked to cancel are stopped."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final

from warmlane.errors import StoreUnavailable
from warmlane.host import ModelHost
from warmlane.store import ResponseStore
from warmlane.turns.runs import StoredRuns
from warmlane.turns.spine import Spine

log = logging.getLogger(__name__)

EVERY_S: Final = 15.0

LISTEN_EVERY_S: Final = 1.0
"""How often a server that attends background responses asks whether one of them is to stop."""

LOST_RUN: Final = b'{"code":"server_error","message":"The server stopped before the response was finished."}'
"""The `error` of a response in progress whose server is gone."""


class Housekeeper:
    """`max_bytes` bounds what the store holds; None does not."""

    def __init__(
        self, host: ModelHost, store: ResponseStore, spine: Spine, runs: StoredRuns, *, max_bytes: int | None
    ) -> None:
        self._host = host
        self._store = store
        self._spine = spine
        self._runs = runs
        self._max_bytes = max_bytes

    async def run(self) -> None:
        """Keep house every `EVERY_S` until cancelled."""
        while True:
            await asyncio.sleep(EVERY_S)
            await self.once()

    async def listen(self) -> None:
        """Stop the runs that are to stop, every `LISTEN_EVERY_S` until cancelled."""
        while True:
            await asyncio.sleep(LISTEN_EVERY_S)
            try:
                await self.heed()
            except StoreUnavailable:
                log.debug("the store could not be asked for cancellations")
            except Exception:
                log.exception("listening for cancellations failed")

    async def heed(self) -> None:
        """Stop the runs that another server was asked to cancel. Raises `StoreUnavailable`."""
        for response_id, tenant in await self._runs.to_cancel():
            self._spine.cancel(response_id, tenant)

    async def once(self) -> None:
        """Do every chore. One that fails is logged, and hinders neither the others nor the next time."""
        for chore in (self._sweep, self._settle, self._tend, self._tidy):
            try:
                await chore()
            except StoreUnavailable as error:
                log.warning("the store could not be tidied: %s", error)
                return
            except Exception:
                log.exception("housekeeping failed")

    async def _sweep(self) -> None:
        for binding in self._host.bindings():
            binding.registry.sweep()

    async def _settle(self) -> None:
        ended = await self._runs.settle()
        if ended:
            log.info("%d responses in the background were ended or deleted late", ended)

    async def _tend(self) -> None:
        lost = await self._store.runs.tend(now=time.time(), error=LOST_RUN)
        if lost:
            log.warning("%d responses were in progress on a server that is gone; they have failed", len(lost))

    async def _tidy(self) -> None:
        gone = await self._spine.tidy(max_bytes=self._max_bytes)
        if gone:
            log.info("%d responses were pruned", gone)
