"""Conversations and what is in them, as the wire has it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from warmlane.api.responses.items import InputItem, input_items
from warmlane.conversation.kept import Conversation, Entry, Transcript


class ConversationObject(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["conversation"] = "conversation"
    created_at: int
    metadata: msgspec.Raw


class DeletedConversation(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["conversation.deleted"] = "conversation.deleted"
    deleted: bool = True


def conversation_object(conversation: Conversation) -> ConversationObject:
    return ConversationObject(
        id=conversation.id, created_at=int(conversation.created_at), metadata=msgspec.Raw(conversation.metadata)
    )


def entry_items(entry: Entry) -> tuple[InputItem, ...]:
    """The items of one message. Their ids derive from the entry's, so that they are the same each time."""
    return input_items(entry.id, (entry.message,))


def all_items(transcript: Transcript) -> tuple[InputItem, ...]:
    """Oldest first."""
    return tuple(item for _, _, item in located(transcript))


def located(transcript: Transcript) -> Iterator[tuple[Entry, int, InputItem]]:
    """Each item with the entry it is a part of, and which part."""
    for entry in transcript.entries:
        for index, item in enumerate(entry_items(entry)):
            yield entry, index, item
