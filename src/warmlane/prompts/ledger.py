"""Remembers the tokens of replies for clients that replay their history as text.

A stateless client sends an assistant message back without the tokens it was sampled as. The ledger finds them by a
digest of the message as it comes back, per security domain, so no tenant can learn what another was answered.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence

import msgspec

from warmlane.conversation.messages import Message, Role, Sampled
from warmlane.conversation.said import said

_Key = tuple[bytes, bytes]


class SampledLedger:
    """A bounded map from (domain, message digest) to sampled tokens; the least recently used goes first.

    `max_tokens` bounds the sum of remembered token ids over all domains.
    """

    def __init__(self, *, max_tokens: int = 2_000_000) -> None:
        self._entries: OrderedDict[_Key, Sampled] = OrderedDict()
        self._max_tokens = max_tokens
        self._tokens = 0

    def __len__(self) -> int:
        return len(self._entries)

    def remember(self, domain: bytes, message: Message) -> None:
        """Keep the tokens of an assistant message; the newest of two equal messages wins."""
        sampled = message.sampled
        if sampled is None or not sampled.token_ids or len(sampled.token_ids) > self._max_tokens:
            return
        key = (domain, digest(message))
        self._discard(key)
        self._entries[key] = sampled
        self._tokens += len(sampled.token_ids)
        while self._tokens > self._max_tokens:
            self._discard(next(iter(self._entries)))

    def recall(self, domain: bytes, messages: Sequence[Message]) -> tuple[Message, ...]:
        """The same messages, each assistant one that was remembered now carrying its tokens."""
        return tuple(self._recall_one(domain, m) for m in messages)

    def forget(self, domain: bytes) -> None:
        """Remember nothing of a domain any more."""
        for key in [key for key in self._entries if key[0] == domain]:
            self._discard(key)

    def _recall_one(self, domain: bytes, message: Message) -> Message:
        if message.role is not Role.ASSISTANT or message.sampled is not None:
            return message
        key = (domain, digest(message))
        sampled = self._entries.get(key)
        if sampled is None:
            return message
        self._entries.move_to_end(key)
        return msgspec.structs.replace(message, sampled=sampled)

    def _discard(self, key: _Key) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._tokens -= len(entry.token_ids)


def digest(message: Message) -> bytes:
    """Of what the message says: its text and calls, whatever their form.

    Reasoning is left out, because most clients do not send it back; the renderer checks it all the same.
    """
    meant = said(message.parts)
    return hashlib.blake2b(msgspec.msgpack.encode((meant.text, meant.calls)), digest_size=16).digest()
