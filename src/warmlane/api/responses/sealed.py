"""What clients carry for us in `encrypted_content`: reasoning with the reply's tokens, or the summary of a dialogue."""

from __future__ import annotations

import msgspec

from warmlane.conversation.messages import Sampled
from warmlane.turns.service import TurnService


class SealedReasoning(msgspec.Struct, frozen=True, tag="reasoning"):
    """`sampled` is the whole reply's, where that had ended when its reasoning was sealed: not in a stream."""

    text: str
    sampled: Sampled | None = None


class SealedSummary(msgspec.Struct, frozen=True, tag="summary"):
    text: str


Sealed = SealedReasoning | SealedSummary

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Sealed] = msgspec.msgpack.Decoder(Sealed)


class Seals:
    """Seals for one security domain: what one tenant was given opens for no other, and for no other salt."""

    def __init__(self, turns: TurnService, domain: bytes) -> None:
        self._turns = turns
        self._domain = domain

    def seal(self, content: Sealed) -> str:
        return self._turns.seal(self._domain, _encoder.encode(content))

    def open(self, text: object) -> Sealed | None:
        """What `seal` was given; None for anything else, whoever made it."""
        if not isinstance(text, str):
            return None
        data = self._turns.unseal(self._domain, text)
        if data is None:
            return None
        try:
            return _decoder.decode(data)
        except msgspec.MsgspecError:
            return None  # sealed by a version of this server that wrote something else
