"""Why a lookup of a warm session came out as it did."""

from __future__ import annotations

from enum import StrEnum

import msgspec

DEPARTED_IDS = 512
"""How many departed ids (and scoped keys) a registry remembers the fate of."""


class MissReason(StrEnum):
    """The outcome of a lookup; every value but `HIT` names the first thing that stood in the way."""

    HIT = "hit"
    FRESH = "fresh"
    """By rule: nothing was asked for that could have been warm."""
    NO_KEY = "no_key"
    KEY_INELIGIBLE = "key_ineligible"
    """The key is shorter than the minimum, or reuse by key is switched off."""
    UNKNOWN_KEY = "unknown_key"
    UNKNOWN_ID = "unknown_id"
    EXPIRED = "expired"
    INSTRUCTIONS_CHANGED = "instructions_changed"
    SALT_CHANGED = "salt_changed"
    HISTORY_DIVERGED = "history_diverged"
    """No candidate shares a message with the request, or the session has gone on from this id to a later one."""
    BUSY = "busy"
    EVICTED = "evicted"
    DELETED = "deleted"
    ENGINE_RESTARTED = "engine_restarted"
    MODEL_CHANGED = "model_changed"


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

    def record(self, key: str | bytes, tenant: str, reason: MissReason) -> None:
        fates = self._fates
        fates.pop(key, None)
        fates[key] = Fate(tenant, reason)
        if len(fates) > self._limit:
            del fates[next(iter(fates))]

    def forget(self, key: str | bytes) -> None:
        self._fates.pop(key, None)

    def fate(self, key: str | bytes) -> Fate | None:
        return self._fates.get(key)
