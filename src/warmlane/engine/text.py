"""From token bytes to text: whole characters only, stop strings matched across token edges, no lost tail."""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Sequence


class TextAssembler:
    """Text of one turn, delivered piece by piece.

    Bytes that end inside a character, and text that may be the start of a stop string, are held back. U+FFFD appears
    only where the model produced it or bytes that no continuation can make valid. Once `matched` is set nothing more
    may be pushed.

    Of several stop strings the one that is complete first ends the text (of those complete at the same character, the
    longest), so the result does not depend on where token edges fall.
    """

    def __init__(self, stop: Sequence[str] = ()) -> None:
        self._stop = tuple(s for s in stop if s)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self._delivered: list[str] = []
        self._delivered_chars = 0
        self._assembled_chars = 0
        self._n_tokens = 0
        self._ahead: deque[tuple[int, int]] = deque()
        self._faithful = (0, 0)
        self.matched: str | None = None

    def push(self, piece: bytes) -> str:
        """Add the bytes of the next token; returns the text that may now leave. Sets `matched` on a stop string."""
        text = self._decoder.decode(piece)
        self._n_tokens += 1
        self._assembled_chars += len(text)
        if not self._decoder.getstate()[0]:
            self._ahead.append((self._n_tokens, self._assembled_chars))
        if not self._stop:
            return self._deliver(text)
        pending = self._held + text
        match = min(
            ((at + len(s), -len(s), s) for s in self._stop if (at := pending.find(s)) >= 0),
            default=None,
        )
        if match is not None:
            end, _, self.matched = match
            self._held = ""
            return self._deliver(pending[: end - len(self.matched)])
        keep = len(pending) - max(_overlap(pending, s) for s in self._stop)
        self._held = pending[keep:]
        return self._deliver(pending[:keep])

    def finish(self) -> str:
        """The end without a stop string: what was held as a possible start of one. Bytes of an unfinished character
        are dropped. Idempotent."""
        tail, self._held = self._held, ""
        return self._deliver(tail)

    @property
    def between_characters(self) -> bool:
        """Whether no character is unfinished."""
        return not self._decoder.getstate()[0]

    @property
    def n_whole(self) -> int:
        """How many leading tokens have a text that was delivered whole."""
        return self._faithful[0]

    def faithful(self) -> tuple[int, str]:
        """How many leading tokens have a text that is a prefix of what was delivered, and that text."""
        n_tokens, n_chars = self._faithful
        return n_tokens, "".join(self._delivered)[:n_chars]

    def _deliver(self, text: str) -> str:
        if text:
            self._delivered.append(text)
            self._delivered_chars += len(text)
        while self._ahead and self._ahead[0][1] <= self._delivered_chars:
            self._faithful = self._ahead.popleft()
        return text


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that is a proper start of `stop`."""
    for n in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:n]):
            return n
    return 0
