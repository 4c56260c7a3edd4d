"""Which tokens a piece of a reply's text was made of, where the markup between is left out."""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from warmlane.conversation.tools import TokenLogprob


@dataclass(frozen=True, slots=True)
class _Placed:
    """A token and the characters it is in, from `start` to `end`; it may be a part of the first and the last. `token`
    None: it was given out."""

    start: int
    end: int
    token: TokenLogprob | None


class LogprobTrail:
    """Tokens in the order they were sampled; what was told of the reply follows behind, in the same order.

    Their bytes are read as the engine reads them, so that what was told is found in them whatever the model wrote.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._tokens: deque[_Placed] = deque()
        self._text = ""
        self._at = 0
        self._behind: list[str] = []
        self._start = 0
        self._end = 0

    def add(self, tokens: Sequence[TokenLogprob]) -> None:
        for token in tokens:
            begun = bool(self._decoder.getstate()[0])
            start = self._end + (begun and _breaks_off(token.data))
            text = self._decoder.decode(token.data)
            self._behind.append(text)
            self._end += len(text)
            end = self._end + bool(self._decoder.getstate()[0])
            self._tokens.append(_Placed(start, end, token))

    def take(self, text: str) -> tuple[TokenLogprob, ...]:
        """The tokens `text` was made of; those before it are forgotten. A token is given out once, with the first text
        that holds any of it."""
        return tuple(token for token in self._pass(text, given=True) if token is not None)

    def skip(self, text: str) -> None:
        """`text` was told, and is none whose tokens are wanted. A token that goes on behind it is still to be taken."""
        self._pass(text, given=False)

    def _pass(self, text: str, *, given: bool) -> list[TokenLogprob | None]:
        """Go to the end of `text`: the tokens it overlaps. What follows is kept, the last of them too if it goes on."""
        if self._behind:
            self._text = "".join((self._text[self._at :], *self._behind))
            self._at = 0
            self._behind.clear()
        at = self._text.find(text, self._at) if text else -1
        if at < 0:
            return []
        start = self._start + at - self._at
        end = self._start = start + len(text)
        self._at = at + len(text)
        taken: list[TokenLogprob | None] = []
        while self._tokens and self._tokens[0].start < end:
            placed = self._tokens.popleft()
            if placed.end > start:
                taken.append(placed.token)
            if placed.end > end:
                self._tokens.appendleft(_Placed(placed.start, placed.end, None if given else placed.token))
                break
        return taken


def _breaks_off(data: bytes) -> bool:
    """Whether the first of these bytes cannot go on with a character that is begun."""
    return bool(data) and not 0x80 <= data[0] < 0xC0
