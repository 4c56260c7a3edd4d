"""Signatures over text that a client keeps and sends back: they tell what this server said from what it did not."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from enum import StrEnum

KEY_BYTES = 32
_PREFIX = "wl1."


class Verdict(StrEnum):
    """What a signature says of a text: that this server said it (`GENUINE`); that this server said something else, or
    had another secret then (`ALTERED`); that another server said it (`FOREIGN`); nothing (`UNSIGNED`)."""

    GENUINE = "genuine"
    ALTERED = "altered"
    FOREIGN = "foreign"
    UNSIGNED = "unsigned"


class Signer:
    """Signs with HMAC-SHA256 (RFC 2104). Without a key, with a random one: what it signed ends with the process."""

    def __init__(self, key: bytes | None = None) -> None:
        self._key = secrets.token_bytes(KEY_BYTES) if key is None else key

    def sign(self, text: str) -> str:
        mac = hmac.new(self._key, text.encode("utf-8", "surrogatepass"), hashlib.sha256)
        return _PREFIX + mac.hexdigest()

    def verdict(self, text: str, signature: str | None) -> Verdict:
        if not signature:
            return Verdict.UNSIGNED
        if not signature.startswith(_PREFIX):
            return Verdict.FOREIGN
        return Verdict.GENUINE if self._matches(text, signature) else Verdict.ALTERED

    def _matches(self, text: str, signature: str) -> bool:
        return hmac.compare_digest(self.sign(text).encode(), signature.encode("utf-8", "surrogatepass"))
