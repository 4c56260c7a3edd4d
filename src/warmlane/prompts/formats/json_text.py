"""JSON as models write it, followed character by character: where a value ends, and what to mend on the way.

Mended without changing what is meant: raw control characters inside strings, backslashes that escape nothing, and
Python's `True`, `False` and `None`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from enum import Enum, auto

from warmlane.prompts.formats.source import Malformed, Reading, Source

MAX_DEPTH = 128
"""Deepest nesting followed; deeper JSON is malformed here, since it breaks the parsers of those who receive it."""

_PLAIN = re.compile(r'[^"\\\x00-\x1f]+')
_WORD = re.compile(r"[-+.0-9A-Za-z_]+")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_WORDS = {"true": "true", "false": "false", "null": "null", "True": "true", "False": "false", "None": "null"}
_CONTROL = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}


def escaped(text: str) -> str:
    """`text` as it stands inside a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def as_word(text: str) -> str | None:
    """The JSON number or literal that `text` is, Python's literals included; None if it is none."""
    if text in _WORDS:
        return _WORDS[text]
    return text if _NUMBER.fullmatch(text) else None


class _At(Enum):
    VALUE = auto()
    FIRST_KEY = auto()
    KEY = auto()
    COLON = auto()
    AFTER_MEMBER = auto()
    FIRST_ITEM = auto()
    AFTER_ITEM = auto()
    STRING = auto()
    ESCAPE = auto()
    UNICODE = auto()
    WORD = auto()
    DONE = auto()
    FAILED = auto()


class JsonText:
    """Follows one JSON value. `feed` until `done` or `failed`; `out` then holds the mended text of what was read."""

    def __init__(self) -> None:
        self._at = _At.VALUE
        self._open: list[str] = []
        self._is_key = False
        self._pending: list[str] = []
        self.out: list[str] = []

    @property
    def done(self) -> bool:
        return self._at is _At.DONE

    @property
    def failed(self) -> bool:
        return self._at is _At.FAILED

    def drain(self) -> str:
        text = "".join(self.out)
        self.out.clear()
        return text

    def feed(self, text: str, start: int) -> tuple[int, bool]:
        """Follow `text` from `start`; returns where it stopped, and whether it is done or failed there."""
        at = start
        while at < len(text):
            if self._at is _At.STRING:
                at = self._string(text, at)
            elif self._at is _At.WORD:
                at = self._word(text, at)
            elif self._at in (_At.ESCAPE, _At.UNICODE):
                at = self._escape(text, at)
            else:
                at = self._structure(text, at)
            if self._at in (_At.DONE, _At.FAILED):
                return at, True
        return at, False

    def _structure(self, text: str, at: int) -> int:
        char = text[at]
        if char in " \t\r\n":
            self.out.append(char)
            return at + 1
        if self._at in (_At.AFTER_MEMBER, _At.AFTER_ITEM, _At.COLON):
            return at + 1 if self._separator(char) else at
        if char == '"':
            self._is_key = self._at in (_At.KEY, _At.FIRST_KEY)
            self._at = _At.STRING
        elif (char == "}" and self._at is _At.FIRST_KEY) or (char == "]" and self._at is _At.FIRST_ITEM):
            self._close()
        elif self._at not in (_At.VALUE, _At.FIRST_ITEM):
            self._at = _At.FAILED
            return at
        elif char in "{[" and len(self._open) < MAX_DEPTH:
            self._open.append(char)
            self._at = _At.FIRST_KEY if char == "{" else _At.FIRST_ITEM
        elif _WORD.match(char):
            self._at = _At.WORD
            return at
        else:
            self._at = _At.FAILED
            return at
        self.out.append(char)
        return at + 1

    def _separator(self, char: str) -> bool:
        if self._at is _At.COLON:
            known = char == ":"
            following = _At.VALUE
        elif char == ",":
            known = True
            following = _At.KEY if self._at is _At.AFTER_MEMBER else _At.VALUE
        else:
            known = char == ("}" if self._at is _At.AFTER_MEMBER else "]")
            following = _At.DONE
        if not known:
            self._at = _At.FAILED
            return False
        if following is _At.DONE:
            self._close()
        else:
            self._at = following
        self.out.append(char)
        return True

    def _close(self) -> None:
        self._open.pop()
        self._value_ended()

    def _value_ended(self) -> None:
        if not self._open:
            self._at = _At.DONE
        else:
            self._at = _At.AFTER_MEMBER if self._open[-1] == "{" else _At.AFTER_ITEM

    def _string(self, text: str, at: int) -> int:
        plain = _PLAIN.match(text, at)
        if plain:
            self.out.append(plain[0])
            return plain.end()
        char = text[at]
        if char == '"':
            self.out.append(char)
            if self._is_key:
                self._is_key = False
                self._at = _At.COLON
            else:
                self._value_ended()
        elif char == "\\":
            self._at = _At.ESCAPE
        else:
            self.out.append(_CONTROL.get(char) or f"\\u{ord(char):04x}")
        return at + 1

    def _escape(self, text: str, at: int) -> int:
        char = text[at]
        if self._at is _At.UNICODE:
            if char not in "0123456789abcdefABCDEF":
                self._unescaped("u" + "".join(self._pending))
                return at
            self._pending.append(char)
            if len(self._pending) == 4:
                self.out.append("\\u" + "".join(self._pending))
                self._pending.clear()
                self._at = _At.STRING
        elif char == "u":
            self._at = _At.UNICODE
        elif char in '"\\/bfnrt':
            self.out.append("\\" + char)
            self._at = _At.STRING
        else:
            self._unescaped("")
            return at
        return at + 1

    def _unescaped(self, rest: str) -> None:
        """The backslash was a backslash."""
        self.out.append("\\\\" + rest)
        self._pending.clear()
        self._at = _At.STRING

    def _word(self, text: str, at: int) -> int:
        more = _WORD.match(text, at)
        if more:
            self._pending.append(more[0])
            return more.end()
        word = as_word("".join(self._pending))
        self.out.append("".join(self._pending) if word is None else word)
        self._pending.clear()
        if word is None:
            self._at = _At.FAILED
            return at
        self._value_ended()
        return at


def json_value(source: Source, say: Callable[[str], None]) -> Reading[None]:
    """One JSON value, said as it comes. Raises `Malformed`, `Ended`."""
    value = JsonText()

    def step(text: str, start: int) -> tuple[int, bool]:
        stop, enough = value.feed(text, start)
        say(value.drain())
        return stop, enough

    yield from source.run(step)
    if value.failed:
        raise Malformed
