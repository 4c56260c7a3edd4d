"""Text that comes in pieces, read as if it had come whole.

A reader is a generator that yields where it needs more text. Every decision here depends only on what the text is,
never on how much of it happens to be there: that is what makes a parse independent of where its stream was cut. What
is not yet taken is bounded by the longest mark, its look-ahead and `MAX_HEAD`, so that reading is linear.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")
Reading = Generator[None, None, T]
"""Yields where more text is needed, and returns what was read."""

MAX_HEAD = 320
"""Characters between an opener and the end of its head (a tool's name, a parameter's); longer ones are text."""

WHITE = " \t\r\n\f\v"

MAX_GAP = 64
"""White-space characters between a mark and what has to follow it."""


class Ended(Exception):
    """The reply ended where more was needed. `mark` is one that was there, with what has to follow it still open."""

    def __init__(self, mark: Mark | None = None) -> None:
        super().__init__()
        self.mark = mark


class Malformed(Exception):
    """What follows cannot be what was begun."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Markup in running text.

    It counts only if, after white space (and `between`, further characters to skip), one of `then` follows, or nothing
    at all where `at_end`; without either it always counts. Its last `keep` characters belong to what follows.
    """

    text: str
    then: tuple[str, ...] = ()
    at_end: bool = False
    keep: int = 0


class Marks:
    """Marks to look for at once. None of them may be part of another unless it is its end: only then is the first one
    found the same whether more text has come or not."""

    def __init__(self, marks: Iterable[Mark]) -> None:
        self._marks = {mark.text: mark for mark in marks}
        for a in self._marks:
            for b in self._marks:
                if a != b and b in a and not (a.endswith(b) and a.index(b) == len(a) - len(b)):
                    raise ValueError(f"the mark {b!r} is inside the mark {a!r}")
        texts = sorted(self._marks, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, texts))) if texts else None
        self._beginnings = frozenset(text[:n] for text in texts for n in range(1, len(text)))
        self._longest = max(map(len, texts), default=0)

    def find(self, text: str, start: int) -> tuple[int, Mark] | None:
        found = self._pattern.search(text, start) if self._pattern else None
        return (found.start(), self._marks[found[0]]) if found else None

    def held(self, text: str, start: int) -> int:
        """How many characters at the end of `text` may be the start of a mark."""
        for n in range(min(self._longest - 1, len(text) - start), 0, -1):
            if text[len(text) - n :] in self._beginnings:
                return n
        return 0


class Source:
    """The text of one reply that has come and was not taken yet."""

    def __init__(self) -> None:
        self._text = ""
        self._at = 0
        self._over = False
        self._tape: list[str] | None = None

    def feed(self, text: str) -> None:
        self._text = self._text[self._at :] + text
        self._at = 0

    def end(self) -> None:
        self._over = True

    def record(self) -> None:
        """Keep what is taken from here on."""
        self._tape = []

    def recorded(self) -> str:
        """What was taken since `record`; recording ends."""
        tape, self._tape = self._tape or [], None
        return "".join(tape)

    def take(self, n: int) -> str:
        piece = self._text[self._at : self._at + n]
        self._at += len(piece)
        if self._tape is not None and piece:
            self._tape.append(piece)
        return piece

    def more(self) -> Reading[None]:
        """Wait for more text. Raises `Ended`."""
        if self._over:
            raise Ended
        yield

    def peek(self) -> Reading[str]:
        """The next character. Raises `Ended`."""
        while self._at >= len(self._text):
            yield from self.more()
        return self._text[self._at]

    def run(self, step: Callable[[str, int], tuple[int, bool]]) -> Reading[None]:
        """Hand text to `step(text, start)`, which returns where it stopped and whether it has enough. Raises
        `Ended`."""
        while True:
            stop, enough = step(self._text, self._at)
            self.take(stop - self._at)
            if enough:
                return
            if self._over:
                raise Ended
            yield

    def spaces(self) -> Reading[None]:
        """Take white space. Raises `Ended`."""
        while (yield from self.peek()) in WHITE:
            self.take(1)

    def rest(self) -> str:
        """Take all that is there."""
        return self.take(len(self._text) - self._at)

    def choice(self, options: Iterable[str]) -> Reading[str | None]:
        """Take whichever of `options` comes next (the longest); None and nothing taken if none does. Raises `Ended`
        where one may still come."""
        options = sorted(options, key=len, reverse=True)
        while True:
            here = self._text[self._at : self._at + len(options[0])] if options else ""
            if not any(option.startswith(here) and option != here for option in options):
                found = next((option for option in options if here.startswith(option)), None)
                self.take(len(found or ""))
                return found
            yield from self.more()

    def past_gap(self, options: Iterable[str], *, gap: str = WHITE) -> Reading[str | None]:
        """Take white space (or other characters of `gap`) and whichever of `options` follows; None and nothing taken if
        none does, nor anything more."""
        options = sorted(options, key=len, reverse=True)
        longest = max(map(len, options), default=0)
        while True:
            at = self._at
            while at < len(self._text) and self._text[at] in gap and at - self._at <= MAX_GAP:
                at += 1
            here = self._text[at : at + longest]
            found = next((option for option in options if here.startswith(option)), None)
            if found is not None:
                self.take(at - self._at + len(found))
                return found
            open_ended = len(here) < longest and any(option.startswith(here) for option in options)
            if at - self._at > MAX_GAP or not open_ended or self._over:
                return None
            yield

    def head(
        self, ends: tuple[str, ...], *, keep_end: bool = False, viable: re.Pattern[str] | None = None
    ) -> Reading[tuple[str, str]]:
        """Take all before the first of `ends`, and that unless `keep_end`; returns both. `viable` matches what may
        still become a head. Raises `Malformed` if there is no end within `MAX_HEAD` characters, `Ended`."""
        longest = max(map(len, ends))
        while True:
            here = self._text[self._at : self._at + MAX_HEAD + longest]
            found = min(((at, end) for end in ends if (at := here.find(end)) >= 0), default=None)
            if found is not None:
                at, end = found
                if viable is not None and not viable.fullmatch(here[:at]):
                    raise Malformed
                head = self.take(at)
                if not keep_end:
                    self.take(len(end))
                return head, end
            sure = here[: max(len(here) - longest + 1, 0)]
            if len(here) >= MAX_HEAD + longest or (viable is not None and not viable.fullmatch(sure)):
                raise Malformed
            yield from self.more()

    def scan(self, marks: Marks, say: Callable[[str], None]) -> Reading[Mark]:
        """Say the text before the next mark that counts, as it comes, and take the mark. Raises `Ended` once all is
        said."""
        while True:
            found = marks.find(self._text, self._at)
            if found is None:
                held = 0 if self._over else marks.held(self._text, self._at)
                self._say(len(self._text) - held - self._at, say)
                if self._over:
                    raise Ended
                yield
                continue
            start, mark = found
            self._say(start - self._at, say)
            counts = self._followed(mark)
            if counts is None:
                if self._over:
                    raise Ended(mark)
                yield
            elif counts:
                self.take(len(mark.text) - mark.keep)
                return mark
            else:
                self._say(1, say)

    def _say(self, n: int, say: Callable[[str], None]) -> None:
        if n > 0:
            say(self.take(n))

    def _followed(self, mark: Mark) -> bool | None:
        """Whether the mark that is next is followed as it has to be; None if that is open."""
        if not mark.then and not mark.at_end:
            return True
        at = self._at + len(mark.text)
        gap = at
        while gap < len(self._text) and self._text[gap] in WHITE:
            gap += 1
        if gap - at > MAX_GAP:
            return False
        rest = self._text[gap : gap + max(map(len, mark.then), default=0)]
        if any(rest.startswith(option) for option in mark.then):
            return True
        if not rest:
            return True if self._over and mark.at_end else None
        if any(option.startswith(rest) for option in mark.then):
            return None
        return False
