"""What became of ids and keys that are no longer warm, so that a lookup can say it."""

from __future__ import annotations

import msgspec

from warmlane.sessions.pool import Entry
from warmlane.sessions.reasons import MissReason

DEPARTED_IDS = 512
"""How many departed ids (and scoped keys) a registry remembers the fate of."""


class Fate(msgspec.Struct, frozen=True):
    """What became of an id, and whose it was: nobody else is told."""

    tenant: str
    reason: MissReason


class Departed:
    """The fates of ids that were warm once, oldest forgotten first.

    Only ids that really were warm are recorded, so a client that guesses ids cannot flush it.
    """

    def __init__(self, limit: int = DEPARTED_IDS) -> None:
        self._limit = limit
        self._fates: dict[str | bytes, Fate] = {}

    def record_entry(self, entry: Entry, reason: MissReason) -> None:
        """Remember the fate of an entry under its id and its key."""
        if isinstance(entry.id, str):
            self.record(entry.id, entry.tenant, reason)
        if entry.scoped_key is not None:
            self.record(entry.scoped_key, entry.tenant, reason)

    def forget_entry(self, entry: Entry) -> None:
        """It is warm again: its id and key answer for themselves."""
        if isinstance(entry.id, str):
            self._fates.pop(entry.id, None)
        if entry.scoped_key is not None:
            self._fates.pop(entry.scoped_key, None)

    def record(self, key: str | bytes, tenant: str, reason: MissReason) -> None:
        fates = self._fates
        fates.pop(key, None)
        fates[key] = Fate(tenant, reason)
        if len(fates) > self._limit:
            del fates[next(iter(fates))]

    def fate(self, key: str | bytes) -> Fate | None:
        return self._fates.get(key)
