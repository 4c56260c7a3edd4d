"""Log probabilities of sampled tokens, as the model gave them: before penalties, temperature and grammar."""

from __future__ import annotations

from collections import deque

import numpy as np

from warmlane.conversation.tools import TokenLogprob, TopLogprob
from warmlane.engine.backends.base import LogitsRow, Tokenizer

LEAST_LOGPROB = -9999.0
"""Stands for anything less likely, so that every value has a JSON form."""


class LogprobQueue:
    """Of one reply's tokens, those whose text has not left yet. `n_top` others are told beside each."""

    def __init__(self, n_top: int) -> None:
        self._n_top = n_top
        self._waiting: deque[tuple[int, TokenLogprob]] = deque()

    def add(self, index: int, token: int, piece: bytes, row: LogitsRow, tokenizer: Tokenizer) -> None:
        """Token number `index` of the reply was sampled from `row` (shape `[n_vocab]`) and adds `piece` to its text.
        One that adds nothing is no part of the text, and left out."""
        if piece:
            self._waiting.append((index, measure(token, piece, row, tokenizer, self._n_top)))

    def take(self, n_tokens: int) -> tuple[TokenLogprob, ...]:
        """Those of the first `n_tokens` tokens of the reply that were not taken before."""
        taken: list[TokenLogprob] = []
        while self._waiting and self._waiting[0][0] < n_tokens:
            taken.append(self._waiting.popleft()[1])
        return tuple(taken)


def measure(token: int, piece: bytes, row: LogitsRow, tokenizer: Tokenizer, n_top: int) -> TokenLogprob:
    """The natural log of the softmax of `row`, in float64, at `token` and its `n_top` largest values."""
    values = row.astype(np.float64)
    top = values.max()
    total = top + np.log(np.exp(values - top).sum())
    n_top = min(n_top, values.size)
    best = np.argpartition(values, -n_top)[values.size - n_top :] if n_top > 0 else np.empty(0, dtype=np.intp)
    best = best[np.lexsort((best, -values[best]))]
    return TokenLogprob(
        token=_text(piece),
        logprob=max(float(values[token] - total), LEAST_LOGPROB),
        data=piece,
        top=tuple(
            TopLogprob(_text(data), max(float(values[other] - total), LEAST_LOGPROB), data)
            for other in best.tolist()
            for data in (tokenizer.piece(other, special=True),)
        ),
    )


def _text(data: bytes) -> str:
    """A token may be part of a character; such bytes are spelled `\\xc3`, as the vendor does."""
    return data.decode("utf-8", "backslashreplace")
