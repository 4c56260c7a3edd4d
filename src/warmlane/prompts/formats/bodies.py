"""How the calls of a reply are read once their opener is taken: one reader for each body of `describe`.

Each tells the call as soon as it is certain to be one, then its arguments as they come. `Malformed` before that means
that all was text; after it, that the call broke off.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from warmlane.prompts.formats.describe import Call, Head, JsonArguments, JsonCall, LooseObject, Parameters
from warmlane.prompts.formats.json_text import escaped, json_value
from warmlane.prompts.formats.loose import loose_object, python_arguments, python_name
from warmlane.prompts.formats.source import Malformed, Marks, Reading, Source
from warmlane.prompts.formats.teller import Teller
from warmlane.prompts.formats.values import ToolTypes, quoted, told_json, value_json

_STRING_KINDS = ("true", "string")
_STRING = frozenset({"string"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """What the bodies of one reply share."""

    source: Source
    teller: Teller
    types: ToolTypes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Named:
    """The head of a call, as read."""

    name: str
    call_id: str | None
    empty: bool


def read_call(reader: Reader, call: Call) -> Reading[None]:
    """One call after its opener, or several where its body allows it. Raises `Malformed`, `Ended`."""
    body = call.body
    if call.instead is not None:
        yield from reader.source.spaces()
        if (yield from reader.source.peek()) in "[{":
            body = call.instead
    if isinstance(body, JsonCall):
        yield from _json_calls(reader, call, body)
        return
    if call.head is None:
        yield from _python_calls(reader, call)
    else:
        named = _named((yield from read_head(reader.source, call.head)))
        yield from _named_call(reader, call, named)
    if call.close:
        yield from reader.source.past_gap(call.close)


def read_head(source: Source, head: Head) -> Reading[dict[str, str | None]]:
    """The groups of a head after its start. Raises `Malformed`, `Ended`."""
    text, _ = yield from source.head(head.ends, keep_end=head.keep_end, viable=head.viable)
    found = head.pattern.fullmatch(text)
    if found is None:
        raise Malformed
    return found.groupdict()


def _named(groups: dict[str, str | None]) -> _Named:
    name = groups.get("name")
    if not name:
        raise Malformed
    return _Named(name=name, call_id=groups.get("id"), empty=groups.get("empty") is not None)


def _begin(reader: Reader, call: Call, name: str, call_id: str | None) -> None:
    if not name or (call.known and not reader.types.knows(name)):
        raise Malformed
    reader.teller.call(name, call_id)


def _whole(reader: Reader) -> None:
    reader.teller.whole()
    reader.source.record()


def _named_call(reader: Reader, call: Call, named: _Named) -> Reading[None]:
    if named.empty:
        _begin(reader, call, named.name, named.call_id)
        reader.teller.arguments("{}")
    elif isinstance(call.body, Parameters):
        yield from _parameters(reader, call, call.body, named)
    else:
        if isinstance(call.body, JsonArguments):
            yield from reader.source.spaces()
        if (yield from reader.source.peek()) != "{":
            raise Malformed
        _begin(reader, call, named.name, named.call_id)
        if isinstance(call.body, LooseObject):
            yield from loose_object(reader.source, reader.teller.arguments, call.body.quote)
        else:
            yield from json_value(reader.source, reader.teller.arguments)
    _whole(reader)


def _parameters(reader: Reader, call: Call, body: Parameters, named: _Named) -> Reading[None]:
    source, say = reader.source, reader.teller.arguments
    marks = Marks(body.values)
    before = "{"
    while True:
        yield from source.spaces()
        option = yield from source.choice((*body.head.start, *body.close))
        if option is None:
            raise Malformed
        if before == "{":
            _begin(reader, call, named.name, named.call_id)
        if option in body.close:
            say("{}" if before == "{" else "}")
            return
        groups = yield from read_head(source, body.head)
        key = groups.get("key") or ""
        if body.entities:
            key = key.replace("&quot;", '"').replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
        say(f"{before}{quoted(key)}: ")
        before = ", "
        if body.newline and (yield from source.peek()) == "\n":
            source.take(1)
        kind = groups.get("kind")
        if kind is None:
            types = reader.types.of(named.name, key)
            yield from _value(source, marks, partial(value_json, types=types), types == _STRING, say)
        else:
            yield from _value(source, marks, told_json, kind in _STRING_KINDS, say)


def _value(
    source: Source, marks: Marks, as_json: Callable[[str], str], string: bool, say: Callable[[str], None]
) -> Reading[None]:
    """A bare value. A string is said as it comes; what else it may be is only clear once it is whole."""
    if string:
        say('"')
        yield from source.scan(marks, lambda text: say(escaped(text)))
        say('"')
    else:
        pieces: list[str] = []
        yield from source.scan(marks, pieces.append)
        say(as_json("".join(pieces)))


def _json_calls(reader: Reader, call: Call, body: JsonCall) -> Reading[None]:
    source = reader.source
    yield from source.spaces()
    if (yield from source.peek()) != "[":
        another: str | None = "{"
        yield from _expect(source, "{")
        while another == "{":
            yield from _JsonCall(reader, call, body).read()
            another = yield from source.past_gap((*call.close, "{"), gap=" \t\r\n,;}")
        return
    source.take(1)
    yield from source.spaces()
    while True:
        yield from _expect(source, "{")
        yield from _JsonCall(reader, call, body).read()
        yield from source.spaces()
        if (yield from source.peek()) != ",":
            break
        source.take(1)
        yield from source.spaces()
    yield from _expect(source, "]")
    source.record()
    yield from source.past_gap(call.close)


def _expect(source: Source, char: str) -> Reading[None]:
    if (yield from source.peek()) != char:
        raise Malformed
    source.take(1)


class _JsonCall:
    """Reads one call that is an object, after its `{`."""

    def __init__(self, reader: Reader, call: Call, body: JsonCall) -> None:
        self._reader = reader
        self._call = call
        self._body = body
        self._name: str | None = None
        self._call_id: str | None = None
        self._begun = False
        self._held: list[str] | None = None

    def read(self) -> Reading[None]:
        source = self._reader.source
        yield from source.spaces()
        while True:
            key = yield from _string(source)
            yield from source.spaces()
            yield from _expect(source, ":")
            yield from source.spaces()
            yield from self._member(key)
            yield from source.spaces()
            after = yield from source.peek()
            if after == ",":
                source.take(1)
                yield from source.spaces()
                continue
            if after == "}":
                source.take(1)
                break
            # A model that counts its braces wrong has still told the call, if its closing markup is next.
            if self._held is not None and after == "<":
                break
            raise Malformed
        self._end()

    def _member(self, key: str) -> Reading[None]:
        body, source = self._body, self._reader.source
        if key in body.name and self._name is None:
            self._name = yield from _string(source)
        elif key in body.arguments and self._held is None:
            self._held = []
            if self._name is not None:
                self._begin(self._name)
            yield from self._arguments()
        elif key == body.call_id and self._call_id is None and (yield from source.peek()) == '"':
            self._call_id = yield from _string(source)
        elif body.members is None or key in body.members:
            yield from json_value(source, lambda _: None)
        else:
            raise Malformed

    def _begin(self, name: str) -> None:
        _begin(self._reader, self._call, name, self._call_id)
        self._begun = True

    def _say(self, text: str) -> None:
        if self._begun:
            self._reader.teller.arguments(text)
        elif self._held is not None:
            self._held.append(text)

    def _arguments(self) -> Reading[None]:
        """An object, the JSON text of one as a string, or null for none."""
        source = self._reader.source
        first = yield from source.peek()
        if first == "{":
            yield from json_value(source, self._say)
            return
        if first not in '"nN':
            raise Malformed
        pieces: list[str] = []
        yield from json_value(source, pieces.append)
        text = "".join(pieces)
        inner = "{}" if text == "null" else _inner_object(text)
        self._say(text if inner is None else inner)
        if inner is None:
            raise Malformed

    def _end(self) -> None:
        if self._name is None:
            raise Malformed
        if not self._begun:
            self._begin(self._name)
            self._say("".join(self._held or ()) or "{}")
        elif self._held is None:
            self._say("{}")
        _whole(self._reader)


def _string(source: Source) -> Reading[str]:
    """A JSON string, decoded. Raises `Malformed`, `Ended`."""
    if (yield from source.peek()) != '"':
        raise Malformed
    pieces: list[str] = []
    yield from json_value(source, pieces.append)
    decoded = json.loads("".join(pieces))
    return str(decoded)


def _inner_object(text: str) -> str | None:
    """The JSON object that a JSON string spells."""
    try:
        inner = json.loads(text)
        return inner if isinstance(inner, str) and isinstance(json.loads(inner), dict) else None
    except (ValueError, RecursionError):
        return None


def _python_calls(reader: Reader, call: Call) -> Reading[None]:
    source = reader.source
    yield from source.spaces()
    yield from _expect(source, "[")
    while True:
        yield from source.spaces()
        name = yield from python_name(source)
        _begin(reader, call, name, None)
        yield from python_arguments(source, reader.teller.arguments)
        _whole(reader)
        yield from source.spaces()
        if (yield from source.peek()) != ",":
            break
        source.take(1)
    yield from _expect(source, "]")
    source.record()
