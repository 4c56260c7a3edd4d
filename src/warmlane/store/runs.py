"""Responses that are answered in the background: their rows before they end, and the events they have had."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from warmlane.store.base import StoredTurn, TurnStatus
    from warmlane.store.conversations import Continued

LOST_AFTER_S = 90.0
"""A server on another machine that has not been seen to tend its runs for this long is taken for dead."""

EVENTS_PAGE = 1000


class LoggedEvent(msgspec.Struct, frozen=True):
    """One event of a response's stream. `data` is the dialect's own JSON, opaque here; `sequence` grows by one."""

    sequence: int
    data: bytes


class LostRun(msgspec.Struct, frozen=True):
    """A run whose server is gone."""

    id: str
    tenant: str


class OwnRun(msgspec.Struct, frozen=True):
    """A run of this server. `cancelled`: a server was asked to stop it."""

    id: str
    tenant: str
    cancelled: bool


class RunLog(Protocol):
    """A run is a response whose row is there before its outcome is. Raises like `ResponseStore`.

    Its server tends it: one that was killed leaves runs behind, which the next to start on that machine, or any other
    one after `LOST_AFTER_S`, makes failed.
    """

    async def begin(self, turn: StoredTurn) -> None:
        """Write the row of a run that has no outcome yet; it is this server's until it ends."""
        ...

    async def complete(self, turn: StoredTurn, *, continued: Continued | None = None) -> bool:
        """End a run of this server with its outcome, like `ResponseStore.save`. False if there is no such run any more,
        because it was deleted, or has ended, or was given up by another server: nothing is written then."""
        ...

    async def set_status(
        self, response_id: str, tenant: str, status: TurnStatus, *, error: bytes | None = None
    ) -> bool:
        """Move a run that has not ended on, or end it without an outcome. False if there is no such run, or it has
        ended: it then stays as it is."""
        ...

    async def ask_to_cancel(self, response_id: str, tenant: str) -> bool:
        """Have the server of a run know, by its `mine`, that it is to stop. False if there is no such run, or it has
        ended."""
        ...

    async def mine(self) -> tuple[OwnRun, ...]:
        """The runs of this server that have not ended, as far as the store knows."""
        ...

    async def withdraw(self, response_id: str, tenant: str) -> bool:
        """Delete the row of a run of this server. False if there is no such run, or it has ended: it then stays."""
        ...

    async def append(self, response_id: str, tenant: str, events: Sequence[LoggedEvent]) -> bool:
        """Add events to a response's log, all or none. Those whose number it has already are left as they are, so that
        what failed with `StoreUnavailable` can be tried again. False if there is no such response (any more)."""
        ...

    async def events(
        self, response_id: str, tenant: str, *, now: float, after: int = -1, limit: int = EVENTS_PAGE
    ) -> tuple[LoggedEvent, ...] | None:
        """The events after sequence number `after`, in order, at most `limit`. None if there is no such response; empty
        if it has no more events."""
        ...

    async def tend(self, *, now: float, error: bytes) -> tuple[LostRun, ...]:
        """Say that this server's runs are alive, and make those failed with `error` whose server is not. To be called
        at start and every few seconds; returns the runs it made failed. Machines' clocks need not agree: how long a
        server elsewhere has been silent is told by the `now` of this one's calls."""
        ...
