"""JSON values as the schema functions handle them, where in a schema one stands, and what is said about it."""

from __future__ import annotations

import json
import math
from typing import NoReturn, TypeAlias

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"
Schema: TypeAlias = "bool | dict[str, JsonValue]"

MAX_NOTES = 20
MAX_POINTER_CHARS = 200


class NotASchema(ValueError):
    """The text is no JSON object."""


class Notes:
    """What of a schema cannot be enforced: JSON pointers (RFC 6901) with a reason each; those beyond `MAX_NOTES` are
    only counted."""

    def __init__(self) -> None:
        self._texts: dict[str, None] = {}
        self._more = 0

    def add(self, pointer: str, what: str) -> None:
        if len(pointer) > MAX_POINTER_CHARS:
            pointer = f"{pointer[: MAX_POINTER_CHARS // 2]}…{pointer[-MAX_POINTER_CHARS // 2 :]}"
        text = f"{pointer or '(the whole schema)'}: {what}"
        if text in self._texts:
            return
        if len(self._texts) < MAX_NOTES:
            self._texts[text] = None
        else:
            self._more += 1

    @property
    def texts(self) -> tuple[str, ...]:
        more = (f"{self._more} more of the kind",) if self._more else ()
        return (*self._texts, *more)


def parse_object(text: str) -> dict[str, JsonValue] | None:
    """The object that `text` is; None for one nested deeper than can be read. Raises `NotASchema`."""
    try:
        value: JsonValue = json.loads(text, parse_constant=_refuse)
    except RecursionError:
        return None
    except ValueError as error:
        raise NotASchema(f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise NotASchema("not a JSON object")
    return value


def dump(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def below(pointer: str, *keys: str | int) -> str:
    """The pointer of what stands at `keys` under `pointer`."""
    return pointer + "".join("/" + str(key).replace("~", "~0").replace("/", "~1") for key in keys)


def writable(value: JsonValue) -> bool:
    """Whether the value has a text in UTF-8: a lone surrogate or an infinite number has none."""
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return False
    return True


def is_number(value: JsonValue) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def as_count(value: JsonValue) -> int | None:
    """A whole number from 0 on, also if written like 3.0; else None."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")
