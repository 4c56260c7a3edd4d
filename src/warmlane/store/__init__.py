"""The response store: rows that are durable before a client may chain on them."""

from warmlane.store.base import Chain, ChainTurn, ResponseStore, Retention, StoredTurn, TurnStatus, stored_turn
from warmlane.store.open import key_file_of, open_store

__all__ = [
    "Chain",
    "ChainTurn",
    "ResponseStore",
    "Retention",
    "StoredTurn",
    "TurnStatus",
    "key_file_of",
    "open_store",
    "stored_turn",
]
