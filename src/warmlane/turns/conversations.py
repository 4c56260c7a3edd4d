"""Conversation objects as the edge sees them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from warmlane.conversation.kept import Conversation, Entry, Transcript
from warmlane.errors import ConversationNotFound
from warmlane.store import ResponseStore


class ConversationArchive(Protocol):
    """Conversations, each its tenant's own: a foreign id is answered like an unknown one.

    Every method raises `StoreUnavailable`, and all but `create` raise `ConversationNotFound`.
    """

    async def create(
        self, conversation_id: str, tenant: str, metadata: bytes, entries: Sequence[Entry]
    ) -> Conversation:
        """Begin a conversation with what was said so far."""
        ...

    async def retrieve(self, conversation_id: str, tenant: str) -> Conversation: ...

    async def set_metadata(self, conversation_id: str, tenant: str, metadata: bytes) -> Conversation: ...

    async def delete(self, conversation_id: str, tenant: str) -> None:
        """Delete it with everything in it; responses that were made in it stay."""
        ...

    async def read(self, conversation_id: str, tenant: str) -> Transcript:
        """It and everything said in it."""
        ...

    async def add(self, conversation_id: str, tenant: str, entries: Sequence[Entry]) -> None:
        """Put entries at its end."""
        ...

    async def change(self, conversation_id: str, tenant: str, entry_id: str, entry: Entry | None) -> None:
        """Put another entry of the same id in the place of one; None takes it out."""
        ...


class StoredConversations:
    """A `ConversationArchive` over the store. `unix_now` is wall time in seconds."""

    def __init__(self, store: ResponseStore, *, unix_now: Callable[[], float]) -> None:
        self._kept = store.conversations
        self._unix_now = unix_now

    async def create(
        self, conversation_id: str, tenant: str, metadata: bytes, entries: Sequence[Entry]
    ) -> Conversation:
        now = self._unix_now()
        conversation = Conversation(id=conversation_id, tenant=tenant, created_at=now, used_at=now, metadata=metadata)
        await self._kept.create(conversation, entries)
        return conversation

    async def retrieve(self, conversation_id: str, tenant: str) -> Conversation:
        return _found(await self._kept.get(conversation_id, tenant), conversation_id)

    async def set_metadata(self, conversation_id: str, tenant: str, metadata: bytes) -> Conversation:
        return _found(await self._kept.set_metadata(conversation_id, tenant, metadata), conversation_id)

    async def delete(self, conversation_id: str, tenant: str) -> None:
        if not await self._kept.delete(conversation_id, tenant):
            raise ConversationNotFound(conversation_id)

    async def read(self, conversation_id: str, tenant: str) -> Transcript:
        transcript = await self._kept.read(conversation_id, tenant)
        if transcript is None:
            raise ConversationNotFound(conversation_id)
        return transcript

    async def add(self, conversation_id: str, tenant: str, entries: Sequence[Entry]) -> None:
        if not await self._kept.add(conversation_id, tenant, entries, now=self._unix_now()):
            raise ConversationNotFound(conversation_id)

    async def change(self, conversation_id: str, tenant: str, entry_id: str, entry: Entry | None) -> None:
        now = self._unix_now()
        if entry is None:
            done = await self._kept.remove(conversation_id, tenant, entry_id, now=now)
        else:
            done = await self._kept.replace(conversation_id, tenant, entry, now=now)
        if not done:
            raise ConversationNotFound(conversation_id, entry_id)


def _found(conversation: Conversation | None, conversation_id: str) -> Conversation:
    if conversation is None:
        raise ConversationNotFound(conversation_id)
    return conversation
