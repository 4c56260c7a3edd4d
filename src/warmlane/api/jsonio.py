"""JSON in and out: strict about syntax, tolerant of what clients cut in half."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import cast

import msgspec

from warmlane.errors import InvalidRequest

JsonObject = dict[str, object]

MAX_NESTING = 200
"""Objects and arrays within each other. What is nested this deep can still be copied, validated and written everywhere:
the interpreter's own limit is about five times as far, for its frames and the JSON's levels together."""

_TOO_DEEP = f"The request body is nested too deeply; at most {MAX_NESTING} levels are supported."

# An escaped backslash, a surrogate pair, or half of one; only the last is six bytes long.
_SURROGATES = re.compile(
    rb"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
)
# Line ends to `str.splitlines`, on which some SSE parsers split.
_LINE_ENDS = ((b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"), (b"\xc2\x85", b"\\u0085"))


def decode_object(body: bytes) -> JsonObject:
    """The JSON object of a request body.

    Refuses NaN, infinities, numbers out of range, invalid UTF-8 and nesting beyond `MAX_NESTING` levels; of a
    repeated key the last value counts. Half a surrogate pair (a client cut its text inside an emoji) becomes U+FFFD,
    as refusing it would end that conversation for good. Raises `InvalidRequest`.
    """
    try:
        value = msgspec.json.decode(_mend_surrogates(body))
    except RecursionError:
        raise InvalidRequest(_TOO_DEEP) from None
    except msgspec.MsgspecError as error:
        raise InvalidRequest(f"The request body is not valid JSON: {error}.") from None
    if not isinstance(value, dict):
        raise InvalidRequest("The request body must be a JSON object.")
    if body.count(b"{") + body.count(b"[") > MAX_NESTING and _levels_exceed(value, MAX_NESTING):
        raise InvalidRequest(_TOO_DEEP)
    return cast(JsonObject, value)


def _levels_exceed(value: object, limit: int) -> bool:
    """Whether there are more than `limit` levels; looks at each container once, and never recurs."""
    level = [value]
    for _ in range(limit):
        level = [inner for outer in level for inner in _inside(outer) if isinstance(inner, dict | list)]
        if not level:
            return False
    return True


def _inside(container: object) -> Iterable[object]:
    if isinstance(container, dict):
        return cast(JsonObject, container).values()
    return cast(list[object], container)


def encode(value: object) -> bytes:
    """Compact JSON in UTF-8, safe inside one SSE line."""
    try:
        data = msgspec.json.encode(value)
    except UnicodeEncodeError:
        data = json.dumps(msgspec.to_builtins(value), separators=(",", ":")).encode()
    for raw, escaped in _LINE_ENDS:
        if raw in data:
            data = data.replace(raw, escaped)
    return data


def _mend_surrogates(body: bytes) -> bytes:
    if b"\\ud" not in body and b"\\uD" not in body:
        return body
    return _SURROGATES.sub(lambda found: b"\\ufffd" if len(found[0]) == 6 else found[0], body)
