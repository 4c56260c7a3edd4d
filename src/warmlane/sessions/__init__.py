"""Warm sessions and admission, usable as a library around any engine that implements `SessionEngine`."""

from warmlane.sessions.disposal import DISPOSAL_TIMEOUT_S
from warmlane.sessions.lane import QUEUE_TIMEOUT_S, Lane, Permit, Seat
from warmlane.sessions.lease import Adoption, Lease, LeaseQuery, PeekedHistory, WarmSession
from warmlane.sessions.paging import effective_capacity, is_paged
from warmlane.sessions.reasons import MissReason
from warmlane.sessions.registry import TTL_S, WARM_CAPACITY, SessionRegistry
from warmlane.sessions.scoping import Purpose, Secrets
from warmlane.sessions.session import ChatSession, SessionDefaults, SessionEngine, resolve_sampling
from warmlane.sessions.tool_results import canonical_tool_results, open_calls

__all__ = [
    "DISPOSAL_TIMEOUT_S",
    "QUEUE_TIMEOUT_S",
    "TTL_S",
    "WARM_CAPACITY",
    "Adoption",
    "ChatSession",
    "Lane",
    "Lease",
    "LeaseQuery",
    "MissReason",
    "PeekedHistory",
    "Permit",
    "Purpose",
    "Seat",
    "Secrets",
    "SessionDefaults",
    "SessionEngine",
    "SessionRegistry",
    "WarmSession",
    "canonical_tool_results",
    "effective_capacity",
    "is_paged",
    "open_calls",
    "resolve_sampling",
]
