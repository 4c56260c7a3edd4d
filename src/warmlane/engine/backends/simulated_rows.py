"""The simulated engine's logits: one certain token, or a hash of the cells seen.

No token is impossible, so that a grammar can hold any reply to itself: where it does not allow what would come, the
likeliest allowed token is the one that brings the reply to its end soonest.
"""

from __future__ import annotations

import hashlib

import numpy as np

from warmlane.engine.backends.base import LogitsRow
from warmlane.engine.backends.bytes_vocab import IM_END, N_VOCAB
from warmlane.engine.vectors import Int32Array

_PRINTABLE = slice(33, 127)
_HASH_MIN_REPLY = 8
_HASH_END_EVERY = 32
_APART = 100.0
"""Nats between one token and the next likely: more than any temperature makes up for."""

_SOONEST = (
    IM_END,
    *b'"}],:0123456789',
    *range(ord("a"), ord("z") + 1),
    *range(ord("A"), ord("Z") + 1),
    *range(33, 127),
)


def _closing_row() -> LogitsRow:
    """Likeliest first what ends a reply, then what ends a JSON value; white space and control tokens last."""
    order = [*dict.fromkeys((*_SOONEST, *range(128, 256), *range(256), *range(256, N_VOCAB)))]
    row = np.empty(N_VOCAB, dtype=np.float32)
    row[order] = -_APART * np.arange(1, N_VOCAB + 1)
    return row


_CLOSING = _closing_row()


_THOUGHT, _THOUGHT_ENDS, _CALL = b"<think>", b"</think>", b"<tool_call>"


def behind_thought(wanted: bytes, said: bytes) -> bytes:
    """The script `wanted` as it goes on where its thought was ended early, in a reply that has come to `said`."""
    thought, ends, behind = said.partition(_THOUGHT_ENDS)
    scripted, ended, rest = wanted.partition(_THOUGHT_ENDS)
    if not (ends and ended and scripted.startswith(thought.rstrip())):
        return wanted
    gap = behind[: len(behind) - len(behind.lstrip())]
    return thought + ends + gap + rest.lstrip()


def closing(said: bytes) -> LogitsRow:
    """For a reply that left its script and has come to `said`: it makes a call rather than begin a thought, and ends a
    thought at once."""
    ending = _THOUGHT_ENDS if said.rfind(_THOUGHT) > said.rfind(_THOUGHT_ENDS) else _CALL
    begun = next((n for n in range(len(ending) - 1, 0, -1) if said.endswith(ending[:n])), 0)
    return certain(ending[begun]) if begun or ending is _THOUGHT_ENDS else _CLOSING


def certain(token: int) -> LogitsRow:
    """`token` for sure, if it is allowed."""
    row = _CLOSING.copy()
    row[token] = 0.0
    return row


def hashed(tokens: Int32Array, positions: Int32Array, progress: int) -> LogitsRow:
    """Pseudo-random logits over printable tokens, a function of every cell seen; a reply ends now and then."""
    digest = hashlib.blake2b(tokens.tobytes() + positions.tobytes(), digest_size=8).digest()
    seed = int.from_bytes(digest, "little")
    if progress >= _HASH_MIN_REPLY and seed % _HASH_END_EVERY == 0:
        return certain(IM_END)
    row = _CLOSING.copy()
    row[_PRINTABLE] = np.random.Generator(np.random.PCG64(seed)).normal(0.0, 3.0, size=94)
    return row
