"""The response store: rows that are durable before a client may chain on them."""

from warmlane.store.base import (
    Chain,
    ChainTurn,
    Erased,
    InUse,
    ResponseStore,
    Retention,
    StoredTurn,
    TurnStatus,
    queued_turn,
    stored_turn,
)
from warmlane.store.conversations import Continued, ConversationStore
from warmlane.store.open import key_file_of, open_store
from warmlane.store.runs import LoggedEvent, LostRun, OwnRun, RunLog

__all__ = [
    "Chain",
    "ChainTurn",
    "Continued",
    "ConversationStore",
    "Erased",
    "InUse",
    "LoggedEvent",
    "LostRun",
    "OwnRun",
    "ResponseStore",
    "Retention",
    "RunLog",
    "StoredTurn",
    "TurnStatus",
    "key_file_of",
    "open_store",
    "queued_turn",
    "stored_turn",
]
