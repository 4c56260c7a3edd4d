"""Responses that are answered in the background, as the edge sees them: rows that are there before their outcome, and
the events they have had."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from warmlane.conversation.turn import TurnRequest
from warmlane.errors import ResponseNotFound
from warmlane.store import LoggedEvent, ResponseStore, TurnStatus, queued_turn

__all__ = ["LoggedEvent", "RunArchive", "StoredRuns"]


class RunArchive(Protocol):
    """Runs, each its tenant's own. Every method raises `StoreUnavailable`."""

    async def begin(self, request: TurnRequest) -> None:
        """Write the row of a run that waits. It is to be left at its end, unless this raises: then there is no row, or
        soon none."""
        ...

    def leave(self, response_id: str, tenant: str) -> None:
        """Nobody here attends the run any more."""
        ...

    async def ask_to_cancel(self, response_id: str, tenant: str) -> bool:
        """Have a run of another server stop, within a second or two where that server lives. False if it has ended."""
        ...

    async def progress(self, response_id: str, tenant: str) -> None:
        """The run has begun to be answered."""
        ...

    async def end(self, response_id: str, tenant: str, *, cancelled: bool = False, error: bytes | None = None) -> None:
        """The run ended without an outcome: cancelled, or failed. `error` is the dialect's own JSON of why, and of what
        there was by then. One that has ended stays as it is. What raises is remembered, and tried again later."""
        ...

    async def append(self, response_id: str, tenant: str, events: Sequence[LoggedEvent]) -> None:
        """Add to the run's log; to one that was deleted, nothing."""
        ...

    async def events(self, response_id: str, tenant: str, *, after: int) -> tuple[LoggedEvent, ...]:
        """A page of the events behind number `after`; empty where there are no more. Raises `ResponseNotFound`."""
        ...


@dataclass(frozen=True, slots=True)
class _End:
    status: TurnStatus
    error: bytes | None = None


class StoredRuns:
    """A `RunArchive` over the store. `unix_now` is wall time in seconds.

    An end the store did not take is owed: `tend` keeps this server's rows alive, so that without it such a run would
    be in progress for ever. A store that is away begins no runs, so what is owed is bounded by those that ran.
    For the same reason a row that nobody attends is deleted: its client was told that it did not begin, as the store
    took it too late.
    """

    def __init__(self, store: ResponseStore, *, unix_now: Callable[[], float]) -> None:
        self._log = store.runs
        self._unix_now = unix_now
        self._store = store
        self._owed: dict[tuple[str, str], _End] = {}
        self._attended: set[tuple[str, str]] = set()

    async def begin(self, request: TurnRequest) -> None:
        run = (request.response_id, request.tenant)
        self._attended.add(run)
        try:
            await self._log.begin(queued_turn(request, created_at=self._unix_now()))
        except BaseException:
            self._attended.discard(run)
            raise

    def leave(self, response_id: str, tenant: str) -> None:
        self._attended.discard((response_id, tenant))

    async def ask_to_cancel(self, response_id: str, tenant: str) -> bool:
        return await self._log.ask_to_cancel(response_id, tenant)

    async def to_cancel(self) -> list[tuple[str, str]]:
        """Ids and tenants of the attended runs that other servers were asked to cancel. Raises `StoreUnavailable`."""
        if not self._attended:
            return []
        asked = [(run.id, run.tenant) for run in await self._log.mine() if run.cancelled]
        return [run for run in asked if run in self._attended]

    async def progress(self, response_id: str, tenant: str) -> None:
        await self._log.set_status(response_id, tenant, TurnStatus.IN_PROGRESS)

    async def end(self, response_id: str, tenant: str, *, cancelled: bool = False, error: bytes | None = None) -> None:
        status = TurnStatus.CANCELLED if cancelled else TurnStatus.FAILED
        self._owed[response_id, tenant] = _End(status, error)
        await self._settle(response_id, tenant)

    async def settle(self) -> int:
        """End the runs whose end the store has not taken, and delete those that nobody attends. To be called every few
        seconds; returns how many there were.

        Raises `StoreUnavailable`; the others stay owed.
        """
        owed = tuple(self._owed)
        for response_id, tenant in owed:
            await self._settle(response_id, tenant)
        return len(owed) + await self._delete_unattended()

    async def _delete_unattended(self) -> int:
        stored = [(run.id, run.tenant) for run in await self._log.mine()]
        unattended = [run for run in stored if run not in self._attended and run not in self._owed]
        # One of them may have ended since they were read: its row stays.
        return sum([await self._log.withdraw(response_id, tenant) for response_id, tenant in unattended])

    async def append(self, response_id: str, tenant: str, events: Sequence[LoggedEvent]) -> None:
        await self._log.append(response_id, tenant, events)

    async def events(self, response_id: str, tenant: str, *, after: int) -> tuple[LoggedEvent, ...]:
        found = await self._log.events(response_id, tenant, now=self._unix_now(), after=after)
        if found is None:
            raise ResponseNotFound(response_id)
        return found

    async def _settle(self, response_id: str, tenant: str) -> None:
        end = self._owed.get((response_id, tenant))
        if end is not None:
            await self._log.set_status(response_id, tenant, end.status, error=end.error)
            self._owed.pop((response_id, tenant), None)
