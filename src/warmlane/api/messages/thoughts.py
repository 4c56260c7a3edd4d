"""Thinking blocks: how a thought is signed, or carried by its signature alone, and what comes back of it."""

from __future__ import annotations

from warmlane.api.messages.wire import ThinkingBlock
from warmlane.api.signing import Signer, Verdict
from warmlane.turns.service import TurnService

_CARRIED = "wl2."
_TAG = b"thought:"
"""Tells a thought from what else is sealed for a domain."""


class Thoughts:
    """The thoughts of one request, in one security domain. Where they are `omitted`, a block shows nothing of its
    thought, and the signature carries it, sealed."""

    def __init__(self, signer: Signer, turns: TurnService, *, domain: bytes, omitted: bool) -> None:
        self._signer = signer
        self._turns = turns
        self._domain = domain
        self.omitted = omitted

    def block(self, thinking: str) -> ThinkingBlock:
        return ThinkingBlock("" if self.omitted else thinking, self.signature(thinking))

    def signature(self, thinking: str) -> str:
        if not self.omitted:
            return self._signer.sign(thinking)
        return _CARRIED + self._turns.seal(self._domain, _TAG + thinking.encode())

    def read(self, thinking: str, signature: str | None) -> tuple[str, Verdict]:
        """The thought of a block that comes back, and what its signature says of it."""
        if signature is None or not signature.startswith(_CARRIED):
            return thinking, self._signer.verdict(thinking, signature)
        data = self._turns.unseal(self._domain, signature.removeprefix(_CARRIED))
        if data is None or not data.startswith(_TAG):
            return thinking, Verdict.ALTERED
        carried = data.removeprefix(_TAG).decode()
        return (thinking, Verdict.ALTERED) if thinking not in ("", carried) else (carried, Verdict.GENUINE)
