"""A bound on a reply's reasoning: once it is spent, the markup that ends it comes, whatever the model would say."""

from __future__ import annotations

from collections import deque

from warmlane.engine.protocol import ThoughtLimit


class ThoughtWatch:
    """Follows one reply by the bytes of its tokens, and says which tokens must come.

    Reasoning is never ended inside a character, nor where its end may be coming by itself.
    """

    def __init__(self, limit: ThoughtLimit) -> None:
        self._limit = limit
        self._opens = tuple(mark.encode() for mark in limit.opens)
        self._closes = tuple(mark.encode() for mark in limit.closes)
        self._longest = max(map(len, self._closes))
        self._inside = limit.inside
        self._text_begun = False
        self._tail = b""
        self._spent = 0
        self._forced: deque[int] = deque()

    def forced(self) -> int | None:
        """The token that must come next; None if the model is free."""
        return self._forced[0] if self._forced else None

    def give_up(self) -> None:
        """What must come may not, where a grammar holds the reply: it is bounded no further."""
        self._forced.clear()
        self._text_begun, self._inside = True, False

    def saw(self, token: int, piece: bytes, *, whole: bool) -> None:
        """A token came. `whole`: no character is unfinished behind it."""
        if self._forced and self._forced[0] == token:
            self._forced.popleft()
        if self._text_begun:
            return
        self._spent += self._inside
        self._tail += piece
        while self._reached_mark():
            pass
        if self._inside and whole and not self._forced and self._spent >= self._limit.max_tokens and not self._ends():
            self._forced.extend(self._limit.ending)

    def _reached_mark(self) -> bool:
        """Go on to behind the next mark; False if it has not come. Reasoning begins at the start of the reply, and
        behind other reasoning: what else comes there is text."""
        if self._inside:
            ends = [at + len(mark) for mark in self._closes if (at := self._tail.find(mark)) >= 0]
            self._tail = self._tail[min(ends) :] if ends else self._tail[-self._longest :]
            self._inside = not ends
            return bool(ends)
        begun = self._tail.lstrip()
        opened = next((mark for mark in self._opens if begun.startswith(mark)), None)
        if opened is None:
            self._text_begun = bool(begun) and not any(mark.startswith(begun) for mark in self._opens)
            return False
        self._inside, self._tail = True, begun[len(opened) :]
        return True

    def _ends(self) -> bool:
        """Whether the last bytes may be the start of a mark that ends reasoning."""
        return any(self._tail.endswith(mark[:n]) for mark in self._closes for n in range(1, len(mark)))
