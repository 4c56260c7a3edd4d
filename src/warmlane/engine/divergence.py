"""Where a prompt leaves what is cached, for whoever asks why a turn reused so little."""

from __future__ import annotations

from collections.abc import Iterable

from warmlane.engine.backends.base import Tokenizer
from warmlane.engine.protocol import Divergence
from warmlane.engine.vectors import Int32Array, common_prefix

EXCERPT_TOKENS = 16


def nearest(cached: Iterable[Int32Array], tokens: Int32Array) -> tuple[int, Int32Array | None]:
    """How many tokens are in common with what is cached, and with which sequence: of equally near ones with one that
    lies within the prompt."""
    best = (0, False)
    found: Int32Array | None = None
    for other in cached:
        n = common_prefix(other, tokens)
        if found is None or (n, n == other.size) > best:
            best, found = (n, n == other.size), other
    return best[0], found


def divergence_at(tokenizer: Tokenizer, tokens: Int32Array, n: int, cached: Int32Array | None) -> Divergence | None:
    """The prompt and the nearest cached sequence have their first `n` tokens in common. None if the prompt extends it
    or lies within it, or nothing is cached."""
    if cached is None or n in (cached.size, tokens.size):
        return None
    return Divergence(n, int(cached.size), _excerpt(tokenizer, cached, n), _excerpt(tokenizer, tokens, n))


def _excerpt(tokenizer: Tokenizer, tokens: Int32Array, start: int) -> str:
    spelled = b"".join(tokenizer.spelled(int(t)) for t in tokens[start : start + EXCERPT_TOKENS])
    return spelled.decode("utf-8", "replace")
