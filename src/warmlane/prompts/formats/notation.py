"""How values are written where they are not written as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Notation:
    """`quote` stands around strings, which are then raw; None for the language's own literals. `objects` and
    `arguments` are the brackets of an object and of a call's arguments, with what is behind a key. `order` sorts keys.
    """

    quote: str | None
    words: Mapping[bool | None, str]
    objects: tuple[str, str]
    arguments: tuple[str, str]
    bare_keys: bool
    comma: str
    order: Callable[[str], str]

    def write(self, value: object) -> str:
        """A JSON value in this notation."""
        if value is None or isinstance(value, bool):
            return self.words[value]
        if isinstance(value, str):
            return json.dumps(value, ensure_ascii=False) if self.quote is None else self.quote + value + self.quote
        if isinstance(value, Mapping):
            brackets, key_end = self.objects
            return self._members(value, brackets, key_end, bare=self.bare_keys)
        if isinstance(value, list):
            return f"[{self.comma.join(map(self.write, value))}]"
        return json.dumps(value)

    def write_arguments(self, arguments: Mapping[str, object]) -> str:
        brackets, key_end = self.arguments
        return self._members(arguments, brackets, key_end, bare=True)

    def _members(self, members: Mapping[str, object], brackets: str, key_end: str, *, bare: bool) -> str:
        names = sorted(members, key=self.order)
        keys = {name: name if bare else self.write(name) for name in names}
        inner = self.comma.join(f"{keys[name]}{key_end}{self.write(members[name])}" for name in names)
        return brackets[0] + inner + brackets[1]


GEMMA = Notation(
    quote='<|"|>',
    words={True: "true", False: "false", None: "null"},
    objects=("{}", ":"),
    arguments=("{}", ":"),
    bare_keys=True,
    comma=",",
    order=str.lower,
)

PYTHON = Notation(
    quote=None,
    words={True: "True", False: "False", None: "None"},
    objects=("{}", ": "),
    arguments=("()", "="),
    bare_keys=False,
    comma=", ",
    order=lambda key: "",
)
