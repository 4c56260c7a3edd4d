"""Two object notations that are not JSON, read as JSON: Gemma's, and Python's literals."""

from __future__ import annotations

import re
from collections.abc import Callable

from warmlane.prompts.formats.json_text import MAX_DEPTH, as_word, escaped, json_value
from warmlane.prompts.formats.source import Malformed, Mark, Marks, Reading, Source
from warmlane.prompts.formats.values import quoted

Say = Callable[[str], None]

_NAME = re.compile(r"[A-Za-z_][\w.\-]*")
_NAME_SO_FAR = re.compile(r"(?:[A-Za-z_][\w.\-]*)?\s*")
_KEYWORD = re.compile(r"\s*([^\W\d]\w*)\s*")
_KEYWORD_SO_FAR = re.compile(r"\s*(?:[^\W\d]\w*)?\s*")
_BARE_KEY_SO_FAR = re.compile(r"[^{}\[\],]*")
_MAX_NESTING = MAX_DEPTH // 2


def loose_object(source: Source, say: Say, quote: str) -> Reading[None]:
    """`{key:value,…}` with strings between `quote`s. Raises `Malformed`, `Ended`."""
    yield from _Loose(source, say, quote).value(0)


def python_name(source: Source) -> Reading[str]:
    """The name of a function and the parenthesis after it. Raises `Malformed`, `Ended`."""
    text, _ = yield from source.head(("(",), viable=_NAME_SO_FAR)
    if not _NAME.fullmatch(text.strip()):
        raise Malformed
    return text.strip()


def python_arguments(source: Source, say: Say) -> Reading[None]:
    """Keyword arguments up to the closing parenthesis, as a JSON object. Raises `Malformed`, `Ended`."""
    reader = _Python(source, say)
    before = "{"
    yield from source.spaces()
    while (yield from source.peek()) != ")":
        text, _ = yield from source.head(("=",), viable=_KEYWORD_SO_FAR)
        keyword = _KEYWORD.fullmatch(text)
        if keyword is None:
            raise Malformed
        say(f"{before}{quoted(keyword[1])}: ")
        before = ", "
        yield from source.spaces()
        yield from reader.value(0)
        yield from _comma(source, ")")
    source.take(1)
    say("{}" if before == "{" else "}")


def _comma(source: Source, close: str) -> Reading[None]:
    """The comma after an item, or nothing if `close` is next. Raises `Malformed`, `Ended`."""
    yield from source.spaces()
    char = yield from source.peek()
    if char == ",":
        source.take(1)
        yield from source.spaces()
    elif char != close:
        raise Malformed


class _Loose:
    def __init__(self, source: Source, say: Say, quote: str) -> None:
        self._source = source
        self._say = say
        self._quote = quote
        # A quote ends a string only where a string can end, so that one inside of it does no harm.
        self._string_ends = Marks([Mark(quote, then=(",", "}", "]"))])
        self._key_ends = Marks([Mark(quote, then=(":",))])
        self._bare_ends = Marks([Mark(end, keep=1) for end in (",", "}", "]")])

    def value(self, depth: int) -> Reading[None]:
        source = self._source
        if (yield from source.choice((self._quote,))):
            yield from self._string()
            return
        char = yield from source.peek()
        if char in "{[" and depth < _MAX_NESTING:
            source.take(1)
            yield from self._items(depth, is_object=char == "{")
        elif char == '"':
            yield from json_value(source, self._say)
        elif char in ",}]{[":
            raise Malformed
        else:
            pieces: list[str] = []
            yield from source.scan(self._bare_ends, pieces.append)
            bare = "".join(pieces).strip()
            self._say(as_word(bare) or quoted(bare))

    def _items(self, depth: int, *, is_object: bool) -> Reading[None]:
        source, close = self._source, "}" if is_object else "]"
        before = "{" if is_object else "["
        yield from source.spaces()
        while (yield from source.peek()) != close:
            self._say(before)
            before = ", "
            if is_object:
                yield from self._key()
            yield from self.value(depth + 1)
            yield from _comma(source, close)
        source.take(1)
        self._say(close if before == ", " else before + close)

    def _key(self) -> Reading[None]:
        source = self._source
        if (yield from source.choice((self._quote,))):
            pieces: list[str] = []
            yield from source.scan(self._key_ends, pieces.append)
            key = quoted("".join(pieces))
            yield from source.spaces()
            yield from source.choice((":",))
        elif (yield from source.peek()) == '"':
            spoken: list[str] = []
            yield from json_value(source, spoken.append)
            key = "".join(spoken)
            yield from source.spaces()
            if not (yield from source.choice((":",))):
                raise Malformed
        else:
            text, _ = yield from source.head((":",), viable=_BARE_KEY_SO_FAR)
            key = quoted(text.strip())
        self._say(f"{key}: ")
        yield from source.spaces()

    def _string(self) -> Reading[None]:
        self._say('"')
        yield from self._source.scan(self._string_ends, lambda text: self._say(escaped(text)))
        self._say('"')


class _Python:
    def __init__(self, source: Source, say: Say) -> None:
        self._source = source
        self._say = say
        self._bare_ends = Marks([Mark(end, keep=1) for end in (",", ")", "]", "}", ":")])

    def value(self, depth: int) -> Reading[None]:
        source = self._source
        char = yield from source.peek()
        if char in "'\"":
            source.take(1)
            yield from self._string(char)
        elif char in "{[(" and depth < _MAX_NESTING:
            source.take(1)
            yield from self._items(depth, {"{": "}", "[": "]", "(": ")"}[char])
        else:
            pieces: list[str] = []
            yield from source.scan(self._bare_ends, pieces.append)
            bare = "".join(pieces).strip()
            word = as_word(bare)
            self._say(bare if word is None else word)
            if word is None:
                raise Malformed

    def _items(self, depth: int, close: str) -> Reading[None]:
        source = self._source
        before = "{" if close == "}" else "["
        yield from source.spaces()
        while (yield from source.peek()) != close:
            self._say(before)
            before = ", "
            if close == "}":
                if (yield from source.peek()) not in "'\"":
                    raise Malformed
                yield from self.value(depth + 1)
                yield from source.spaces()
                if not (yield from source.choice((":",))):
                    raise Malformed
                self._say(": ")
                yield from source.spaces()
            yield from self.value(depth + 1)
            yield from _comma(source, close)
        source.take(1)
        end = "}" if close == "}" else "]"
        self._say(end if before == ", " else before + end)

    def _string(self, delimiter: str) -> Reading[None]:
        text = _PythonString(delimiter)
        self._say('"')

        def step(piece: str, start: int) -> tuple[int, bool]:
            stop, enough = text.feed(piece, start)
            self._say(escaped("".join(text.out)))
            text.out.clear()
            return stop, enough

        yield from self._source.run(step)
        self._say('"')


_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "v": "\v", "a": "\a", "0": "\0", "\n": ""}
_HEX_DIGITS = {"x": 2, "u": 4, "U": 8}


class _PythonString:
    """A string literal after its opening quote."""

    def __init__(self, delimiter: str) -> None:
        self._delimiter = delimiter
        self._plain = re.compile(rf"[^\\{delimiter}]+")
        self._escape: str | None = None
        self.out: list[str] = []

    def feed(self, text: str, start: int) -> tuple[int, bool]:
        at = start
        while at < len(text):
            if self._escape is not None:
                at = self._in_escape(text, at)
                continue
            plain = self._plain.match(text, at)
            if plain:
                self.out.append(plain[0])
                at = plain.end()
            elif text[at] == "\\":
                self._escape = ""
                at += 1
            else:
                return at + 1, True
        return at, False

    def _in_escape(self, text: str, at: int) -> int:
        """One more character of an escape. One that means nothing stays as written, as in Python."""
        escape, char = self._escape or "", text[at]
        if not escape:
            if char in _HEX_DIGITS:
                self._escape = char
                return at + 1
            self._escape = None
            self.out.append(_ESCAPES.get(char, char if char in "\\'\"" else "\\" + char))
            return at + 1
        if char not in "0123456789abcdefABCDEF":
            self._escape = None
            self.out.append("\\" + escape)
            return at
        escape += char
        self._escape = escape
        if len(escape) > _HEX_DIGITS[escape[0]]:
            self._escape = None
            code = int(escape[1:], 16)
            valid = code <= 0x10FFFF and not 0xD800 <= code <= 0xDFFF
            self.out.append(chr(code) if valid else "\\" + escape)
        return at + 1
