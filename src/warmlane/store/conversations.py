"""Where conversations are kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from warmlane.conversation.kept import Conversation, Entry, Transcript


class Continued(msgspec.Struct, frozen=True):
    """The conversation a turn was asked in, as the turn read it."""

    conversation_id: str
    revision: int


class ConversationStore(Protocol):
    """Conversations by id, each belonging to one tenant; a foreign id is answered like an unknown one.

    They do not expire: they stay until they are deleted, or pruned for the store's size. Raises like `ResponseStore`.
    """

    async def create(self, conversation: Conversation, entries: Sequence[Entry] = ()) -> None:
        """Write a conversation and its first entries."""
        ...

    async def get(self, conversation_id: str, tenant: str) -> Conversation | None: ...

    async def set_metadata(self, conversation_id: str, tenant: str, metadata: bytes) -> Conversation | None:
        """Replace the metadata. None if there is no such conversation."""
        ...

    async def delete(self, conversation_id: str, tenant: str) -> bool:
        """Delete a conversation and all its entries; the responses made in it stay. False if there is none."""
        ...

    async def read(self, conversation_id: str, tenant: str) -> Transcript | None:
        """A conversation with everything said in it, in one query."""
        ...

    async def add(self, conversation_id: str, tenant: str, entries: Sequence[Entry], *, now: float) -> bool:
        """Put entries at the end, all or none. False if there is no such conversation."""
        ...

    async def replace(self, conversation_id: str, tenant: str, entry: Entry, *, now: float) -> bool:
        """Put another message in the place of the one with that id. False if there is none."""
        ...

    async def remove(self, conversation_id: str, tenant: str, entry_id: str, *, now: float) -> bool:
        """Take one entry out. False if there is none of that id."""
        ...
