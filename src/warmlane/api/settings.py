"""What the edge is configured with, and what every part of it shares."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from warmlane.api.auth import KeyRing
from warmlane.api.signing import Signer
from warmlane.clock import Clock, SystemClock
from warmlane.host.view import HostView
from warmlane.turns.archive import ResponseArchive
from warmlane.turns.conversations import ConversationArchive
from warmlane.turns.runs import RunArchive
from warmlane.turns.service import TurnService

LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})
MIB = 1024 * 1024
MAX_BODY_BYTES = 10 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeSettings:
    """Bounds of the HTTP edge.

    `allowed_hosts` are the names a `Host` header may carry (no ports); None takes any, which only a bind that needs a
    key may use: on loopback the check is what keeps a web page with a rebound DNS name out. `drain_timeout_s` bounds
    one write to a client that does not read. `canonicalize` gives requests that say the same one prompt: tools and the
    keys of their schemas in order, volatile lines of clients left out.
    """

    keys: KeyRing = field(default_factory=KeyRing)
    max_body_bytes: int = MAX_BODY_BYTES
    keep_alive_s: float = 10.0
    drain_timeout_s: float = 30.0
    allowed_hosts: frozenset[str] | None = LOOPBACK_HOSTS
    canonicalize: bool = True


def _token() -> str:
    return secrets.token_hex(24)


def _unix_s() -> int:
    return int(time.time())


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """The shared context of all routes. `new_token` gives 48 random hex digits, `unix_s` the wall-clock second;
    `signer` signs what clients keep and send back."""

    turns: TurnService
    archive: ResponseArchive
    conversations: ConversationArchive
    runs: RunArchive
    host: HostView
    settings: EdgeSettings
    clock: Clock = field(default_factory=SystemClock)
    signer: Signer = field(default_factory=Signer)
    new_token: Callable[[], str] = _token
    unix_s: Callable[[], int] = _unix_s
