"""Warmlane: an LLM server for agents in which a conversation's next turn costs only its new tokens.

The names below are its heart, sessions and admission, for use around an engine of one's own (`docs/sessions.md`).
"""

from warmlane.sessions import (
    ChatSession,
    Lane,
    Lease,
    LeaseQuery,
    MissReason,
    Permit,
    Secrets,
    SessionDefaults,
    SessionEngine,
    SessionRegistry,
)

__version__ = "0.1.0"

__all__ = [
    "ChatSession",
    "Lane",
    "Lease",
    "LeaseQuery",
    "MissReason",
    "Permit",
    "Secrets",
    "SessionDefaults",
    "SessionEngine",
    "SessionRegistry",
    "__version__",
]
