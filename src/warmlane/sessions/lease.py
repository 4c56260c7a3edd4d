"""What goes into a lookup and what comes out of one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from warmlane.conversation.messages import Message
from warmlane.sessions.pool import Entry, EntryId
from warmlane.sessions.reasons import MissReason
from warmlane.sessions.session import ChatSession


class LeaseQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What a request says about the session it continues.

    `instructions` are canonical (compared byte for byte; None differs from ""), `domain` the 16-byte security domain,
    `history` the request's own whole history. `response_id` is the id the turn will adopt under: with it, a delete of
    that id during the turn is heeded. `stateless` marks a request whose client replays its history and names no
    session (tier 3). `other_model`: the caller knows that the previous response is another model's.
    """

    tenant: str
    domain: bytes
    instructions: str | None = None
    previous_response_id: str | None = None
    prompt_cache_key: str | None = None
    history: tuple[Message, ...] = ()
    stateless: bool = False
    response_id: str | None = None
    other_model: bool = False

    def __repr__(self) -> str:
        """Without the raw key and what was said: a query may end up in a log."""
        return f"LeaseQuery(tenant={self.tenant!r}, previous_response_id={self.previous_response_id!r}, …)"


class Lease(msgspec.Struct, eq=False, kw_only=True):
    """A session in the hands of exactly one caller, who ends it once: `adopt`, `give_back`, `abandon` or `dispose`.

    `reason` is what the tenant may know, `true_reason` what metrics count. `source` is the entry a hit was taken from.
    `started` lists the sessions whose disposals this request began.
    """

    session: ChatSession
    hit: bool
    reason: MissReason
    true_reason: MissReason
    tenant: str
    domain: bytes
    instructions: str | None
    scoped_key: bytes | None
    stateless: bool
    response_id: str | None
    source: Entry | None
    started: list[ChatSession]
    dropped: bool = False
    settled: bool = False

    def __repr__(self) -> str:
        return f"Lease(reason={self.reason.value!r}, response_id={self.response_id!r}, …)"


class LiveLeases:
    """The leases that were not ended yet, by session, by the id and key they were taken from, and by the id they will
    adopt under."""

    def __init__(self) -> None:
        self._by_session: dict[ChatSession, Lease] = {}
        self._from_id: dict[EntryId, Lease] = {}
        self._from_key: dict[bytes, int] = {}
        self._will_adopt: dict[str, Lease] = {}

    def __len__(self) -> int:
        return len(self._by_session)

    def of(self, session: ChatSession) -> Lease | None:
        return self._by_session.get(session)

    def from_id(self, entry_id: EntryId) -> Lease | None:
        """The lease that was taken from an entry of this id."""
        return self._from_id.get(entry_id)

    def from_key(self, scoped_key: bytes) -> bool:
        """Whether a lease was taken from an entry under this key."""
        return scoped_key in self._from_key

    def open(self, lease: Lease) -> None:
        self._by_session[lease.session] = lease
        source = lease.source
        if source is not None:
            self._from_id[source.id] = lease
            if source.scoped_key is not None:
                self._from_key[source.scoped_key] = self._from_key.get(source.scoped_key, 0) + 1
        if lease.response_id is not None:
            self._will_adopt[lease.response_id] = lease

    def close(self, lease: Lease) -> None:
        lease.settled = True
        del self._by_session[lease.session]
        source = lease.source
        if source is not None:
            if self._from_id.get(source.id) is lease:
                del self._from_id[source.id]
            if source.scoped_key is not None:
                left = self._from_key.pop(source.scoped_key) - 1
                if left:
                    self._from_key[source.scoped_key] = left
        if lease.response_id is not None and self._will_adopt.get(lease.response_id) is lease:
            del self._will_adopt[lease.response_id]

    def mark_dropped(self, entry_id: EntryId, tenant: str | None) -> bool:
        """Remember a delete for the turns leased from this id, or about to adopt it. True if there is one."""
        found = False
        will_adopt = self._will_adopt.get(entry_id) if isinstance(entry_id, str) else None
        for lease in (self._from_id.get(entry_id), will_adopt):
            if lease is not None and tenant in (None, lease.tenant):
                lease.dropped = lease.session.purge = found = True
        return found


class Adoption:
    """A session that went back to the registry, on trial until the client is known to have the answer.

    Call one of `keep` and `revoke`; further calls do nothing.
    """

    __slots__ = ("_revoke", "warm")

    def __init__(self, *, warm: bool, revoke: Callable[[], None] | None = None) -> None:
        self.warm = warm
        """Whether the session was retained at all."""
        self._revoke = revoke

    def keep(self) -> None:
        """The terminal event was accepted."""
        self._revoke = None

    def revoke(self) -> None:
        """It was not: drop the entry, unless somebody has leased it since."""
        revoke, self._revoke = self._revoke, None
        if revoke is not None:
            revoke()


@dataclass(frozen=True, slots=True)
class PeekedHistory:
    """The history of a warm session, which no later turn changes. `same_domain`: a lease from the asking domain could
    hit, as far as the domain goes."""

    response_id: str
    history: tuple[Message, ...] = field(repr=False)
    tokens: int
    same_domain: bool


@dataclass(frozen=True, slots=True)
class WarmSession:
    """A line of the session list. `age_s` is the time since its last turn, `tokens` the length of its cells."""

    id: str
    age_s: float
    tokens: int
