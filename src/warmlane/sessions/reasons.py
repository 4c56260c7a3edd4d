"""Why a lookup of a warm session came out as it did."""

from __future__ import annotations

from enum import StrEnum


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
