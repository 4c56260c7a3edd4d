"""Conversations that are kept as such: what was said, message by message, whoever said it."""

from __future__ import annotations

import msgspec

from warmlane.conversation.messages import Message


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """`metadata` is the client's JSON, opaque behind the edge; times are Unix seconds. `revision` grows with every
    change of what was said. `last_response_id` is the response whose turn ended what is in the conversation now; None
    where anything was added or removed since."""

    id: str
    tenant: str
    created_at: float
    used_at: float
    metadata: bytes = b"{}"
    revision: int = 0
    last_response_id: str | None = None


class Entry(msgspec.Struct, frozen=True):
    """One message of a conversation. Its id is unique in the conversation."""

    id: str
    message: Message


class Transcript(msgspec.Struct, frozen=True):
    """A conversation and everything said in it, in order, at one instant."""

    conversation: Conversation
    entries: tuple[Entry, ...]

    @property
    def messages(self) -> tuple[Message, ...]:
        return tuple(entry.message for entry in self.entries)
