"""The text of a grammar in the making: rules of llguidance's Lark syntax, named as they come."""

from __future__ import annotations

import json

ANY = "ANY"


def literal(text: str) -> str:
    """`text` as a terminal; nothing where it is empty."""
    return json.dumps(text, ensure_ascii=False) if text else ""


def sequence(*parts: str) -> str:
    """An expression for one part after the other; empty ones are left out."""
    return " ".join(part for part in parts if part)


def either(options: list[str]) -> str:
    """An expression for one of several."""
    distinct = list(dict.fromkeys(options))
    return distinct[0] if len(distinct) == 1 else f"({' | '.join(distinct)})"


def pattern(text: str) -> str:
    """`text` to the letter inside a `/…/` pattern."""
    return "".join(char if char.isalnum() or ord(char) > 0x7E else f"\\x{ord(char):02x}" for char in text)


class Rules:
    """Rules and terminals; `text()` is the grammar. What is defined twice in the same words is defined once."""

    def __init__(self) -> None:
        self._lines: list[str] = [f"{ANY}: /(?s:.*)/"]
        self._names: dict[tuple[str, str], str] = {}
        self._n_names = 0

    def rule(self, body: str) -> str:
        """A rule, by its name."""
        return self._define("r", "{name}: ", body)

    def terminal(self, body: str) -> str:
        return self._define("T", "{name}: ", body)

    def until(self, end: str, terminal: str = ANY) -> str:
        """The shortest text of `terminal` that `end` follows, and that."""
        return self._define("u", f"{{name}}[suffix={literal(end)}]: ", terminal)

    def json(self, schema: str) -> str:
        """A JSON value of a schema, given as JSON text."""
        return self.rule(f"%json {schema}")

    def without(self, texts: list[str], *, within: str = ANY) -> str:
        """A terminal: text of `within` in which none of `texts` is."""
        if not texts:
            return within
        some = "|".join(map(pattern, texts))
        return self.terminal(f"{within} & ~/(?s:.*)({some})(?s:.*)/")

    def not_starting(self, starts: str, *, within: str = ANY) -> str:
        """A terminal: text of `within` that does not begin with the pattern `starts`."""
        return self.terminal(f"{within} & ~/({starts})(?s:.*)/")

    def recursive(self) -> str:
        """The name of a rule that is defined later, by `define`."""
        return self._new("x")

    def define(self, name: str, body: str) -> None:
        self._lines.append(f"{name}: {body}")

    def text(self, start: str) -> str:
        return "\n".join([f"start: {start}", *self._lines]) + "\n"

    def _define(self, kind: str, form: str, body: str) -> str:
        name = self._names.get((form, body))
        if name is None:
            name = self._names[form, body] = self._new(kind)
            self._lines.append(form.format(name=name) + body)
        return name

    def _new(self, kind: str) -> str:
        self._n_names += 1
        return f"{kind}{self._n_names}"
