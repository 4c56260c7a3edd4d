"""The tokens of text that goes on behind other text."""

from __future__ import annotations

from collections.abc import Callable

_MARK = "\x02"
"""A character that is merged with no other."""


def joined(tokenize: Callable[[str], list[int]], text: str) -> list[int]:
    """The tokens of `text` without what `tokenize` puts in front of whatever it is given, which is a space where a
    vocabulary is SentencePiece's: they are those it has behind a mark."""
    mark, marked = tokenize(_MARK), tokenize(_MARK + text)
    return marked[len(mark) :] if marked[: len(mark)] == mark else tokenize(text)
