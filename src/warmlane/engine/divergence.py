"""Where a prompt leaves what is cached, for whoever asks why a turn reused so little."""

from __future__ import annotations

from warmlane.engine.backends.base import Tokenizer
from warmlane.engine.protocol import Divergence
from warmlane.engine.vectors import Int32Array

EXCERPT_TOKENS = 16


def divergence_at(tokenizer: Tokenizer, tokens: Int32Array, n: int, cached: Int32Array | None) -> Divergence | None:
    """The prompt and the nearest cached sequence have their first `n` tokens in common. None if the prompt extends it
    or lies within it, or nothing is cached."""
    if cached is None or n in (cached.size, tokens.size):
        return None
    return Divergence(n, int(cached.size), _excerpt(tokenizer, cached, n), _excerpt(tokenizer, tokens, n))


def _excerpt(tokenizer: Tokenizer, tokens: Int32Array, start: int) -> str:
    spelled = b"".join(tokenizer.spelled(int(t)) for t in tokens[start : start + EXCERPT_TOKENS])
    return spelled.decode("utf-8", "replace")
