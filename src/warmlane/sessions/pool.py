"""The entries of a registry and the four ways to find one. Pure bookkeeping: nothing is disposed here."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from enum import Enum

import msgspec

from warmlane.conversation.messages import Message, Role
from warmlane.conversation.said import same_content
from warmlane.sessions.session import ChatSession


class Sentinel(Enum):
    """An entry id no client can produce."""

    STATELESS = "stateless"


EntryId = str | Sentinel
_UNSPOKEN = frozenset({Role.SYSTEM, Role.DEVELOPER})


class Entry(msgspec.Struct, eq=False):
    """One warm session. `expires_at` is clock time, and strictly past it the entry is expired."""

    id: EntryId
    session: ChatSession
    history: tuple[Message, ...]
    tenant: str
    domain: bytes
    instructions: str | None
    scoped_key: bytes | None
    adopted_at: float
    expires_at: float
    leased_once: bool = False

    def __repr__(self) -> str:
        return f"Entry(id={self.id!r}, …)"


class WarmPool:
    """Entries by id, by session, by scoped cache key, and by tenant in the order of adoption."""

    def __init__(self) -> None:
        self._by_id: dict[EntryId, Entry] = {}
        self._by_session: dict[ChatSession, Entry] = {}
        self._by_key: dict[bytes, dict[Entry, None]] = {}
        self._by_tenant: dict[str, OrderedDict[Entry, None]] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Entry]:
        return iter(tuple(self._by_id.values()))

    def get(self, entry_id: EntryId) -> Entry | None:
        return self._by_id.get(entry_id)

    def holding(self, session: ChatSession) -> Entry | None:
        return self._by_session.get(session)

    def keyed(self, scoped_key: bytes) -> tuple[Entry, ...]:
        """Every entry under a scoped key, oldest first."""
        return tuple(self._by_key.get(scoped_key, ()))

    def of_tenant(self, tenant: str) -> tuple[Entry, ...]:
        """A tenant's entries, least recently used first."""
        return tuple(self._by_tenant.get(tenant, ()))

    def put(self, entry: Entry) -> Entry | None:
        """Take an entry in. Another one holding its session is forgotten; one displaced under its id is returned."""
        other = self._by_session.get(entry.session)
        if other is not None:
            self.remove(other)
        displaced = self._by_id.get(entry.id)
        if displaced is not None:
            self.remove(displaced)
        self._by_id[entry.id] = entry
        self._by_session[entry.session] = entry
        if entry.scoped_key is not None:
            self._by_key.setdefault(entry.scoped_key, {})[entry] = None
        mine = self._by_tenant.get(entry.tenant)
        if mine is None:
            mine = self._by_tenant[entry.tenant] = OrderedDict()
        mine[entry] = None
        return displaced

    def remove(self, entry: Entry) -> None:
        del self._by_id[entry.id]
        del self._by_session[entry.session]
        if entry.scoped_key is not None:
            keyed = self._by_key[entry.scoped_key]
            del keyed[entry]
            if not keyed:
                del self._by_key[entry.scoped_key]
        mine = self._by_tenant[entry.tenant]
        del mine[entry]
        if not mine:
            del self._by_tenant[entry.tenant]

    def evictee(self) -> Entry:
        """The entry to give up: the least recently used one of the tenant that holds most; among tenants that hold as
        many, the oldest of theirs. Linear in tenants, not in entries."""

        oldest = [next(iter(mine)) for mine in self._by_tenant.values()]
        return min(oldest, key=lambda entry: (-len(self._by_tenant[entry.tenant]), entry.adopted_at))


def best_match(candidates: list[Entry], history: tuple[Message, ...]) -> Entry | None:
    """The candidate that shares the longest message prefix with `history`, the latest of equals; None if none shares
    any.

    Leading system messages alone are no shared conversation: a helper with the same ones must not take the main agent's
    session, and the prefix cache warms those anyway.
    """
    best: Entry | None = None
    best_shared = 0
    for entry in candidates:
        shared, spoken = 0, False
        for mine, theirs in zip(entry.history, history, strict=False):
            if mine is not theirs and not same_content(mine, theirs):
                break
            shared += 1
            spoken = spoken or mine.role not in _UNSPOKEN
        if spoken and shared >= best_shared:
            best, best_shared = entry, shared
    return best
