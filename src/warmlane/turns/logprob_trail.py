"""Which tokens a piece of a reply's text was made of, where the markup between is left out."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from warmlane.conversation.tools import TokenLogprob


class LogprobTrail:
    """Tokens in the order they were sampled; what was told of the reply follows behind, in the same order."""

    def __init__(self) -> None:
        self._tokens: deque[tuple[int, TokenLogprob | None]] = deque()
        self._bytes = bytearray()

    def add(self, tokens: Sequence[TokenLogprob]) -> None:
        for token in tokens:
            self._tokens.append((len(token.data), token))
            self._bytes += token.data

    def take(self, text: str) -> tuple[TokenLogprob, ...]:
        """The tokens `text` was made of; those before it are forgotten. A token is given out once, with the first text
        that holds any of it."""
        taken, rest = self._pass(text)
        if rest:
            self._tokens.appendleft((rest, None))
        return tuple(token for token in taken if token is not None)

    def skip(self, text: str) -> None:
        """`text` was told, and is none whose tokens are wanted. A token that goes on behind it is still to be taken."""
        taken, rest = self._pass(text)
        if rest:
            self._tokens.appendleft((rest, taken[-1]))

    def _pass(self, text: str) -> tuple[list[TokenLogprob | None], int]:
        """Go to the end of `text`: the tokens it overlaps, and how many bytes of the last one are left behind it."""
        data = text.encode("utf-8", "replace")
        at = self._bytes.find(data) if data else -1
        if at < 0:
            return [], 0
        end = at + len(data)
        del self._bytes[:end]
        taken: list[TokenLogprob | None] = []
        position = 0
        while self._tokens and position < end:
            size, token = self._tokens.popleft()
            position += size
            if position > at:
                taken.append(token)
        return taken, position - end
