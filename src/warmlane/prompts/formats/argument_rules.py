"""Grammar rules for a tool's arguments, in each of the ways families write them."""

from __future__ import annotations

import json
from collections.abc import Mapping

from warmlane.conversation.tools import Tool
from warmlane.prompts.formats.notation import GEMMA, PYTHON, Notation
from warmlane.prompts.formats.rules import Rules, either, literal
from warmlane.prompts.formats.values import schema_types
from warmlane.prompts.formats.writing import Arguments, Elements, Kind, Writing, entities
from warmlane.prompts.schema import enforceable_arguments

Schema = Mapping[str, object]

_DEEPEST = 6
"""Nesting of a schema that is followed where it is not llguidance that follows it; deeper values are any."""


def argument_rule(rules: Rules, writing: Writing, tool: Tool) -> str:
    """An expression for all that stands between `middle` and `close` of a call of `tool`."""
    text = enforceable_arguments(tool.parameters).schema
    if writing.arguments is Arguments.JSON:
        return rules.json(text)
    schema = _parsed(text)
    if writing.elements is not None:
        return _elements(rules, writing.elements, schema)
    return _Noted(rules, GEMMA if writing.arguments is Arguments.LOOSE else PYTHON, schema).arguments()


def _parsed(text: str) -> Schema:
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return schema if isinstance(schema, dict) else {}


def _properties(schema: Schema) -> dict[str, Schema] | None:
    """None where the schema leaves the names open."""
    listed = schema.get("properties")
    if not isinstance(listed, Mapping):
        return None
    return {str(name): body if isinstance(body, Mapping) else {} for name, body in listed.items()}


def _required(schema: Schema) -> frozenset[str]:
    listed = schema.get("required")
    return frozenset(map(str, listed)) if isinstance(listed, list) else frozenset()


def _with_definitions(schema: Schema, root: Schema) -> str:
    named = {key: root[key] for key in ("$defs", "definitions") if key in root}
    return json.dumps({**named, **schema}, ensure_ascii=False)


def _values(schema: Schema) -> list[object] | None:
    if "const" in schema:
        return [schema["const"]]
    listed = schema.get("enum")
    return listed if isinstance(listed, list) and listed else None


def _elements(rules: Rules, how: Elements, schema: Schema) -> str:
    properties = _properties(schema)
    if properties is None:
        key = rules.terminal(r'/[^<>"&\n]{1,64}/')
        return rules.rule(f"({literal(how.open)} {key} {_element_value(rules, how, {}, {})})*")
    required = _required(schema)
    parts: list[str] = []
    for name, body in properties.items():
        key = literal(how.open + (entities(name) if how.entities else name))
        part = rules.rule(f"{key} {_element_value(rules, how, body, schema)}")
        parts.append(part if name in required else f"{part}?")
    return rules.rule(" ".join(parts) or '""')


def _element_value(rules: Rules, how: Elements, schema: Schema, root: Schema) -> str:
    types = schema_types(schema, root) or frozenset(("string", "object", "array", "number", "boolean", "null"))
    close = literal(how.close)
    values = _values(schema)
    string = rules.until(how.close)
    if values is not None and all(isinstance(value, str) for value in values):
        string = f"{either([literal(str(value)) for value in values])} {close}"
    structure = f"{rules.json(_with_definitions(schema, root))} {close}"
    if how.kind is Kind.UNTOLD:
        return f"{literal(how.middle)} {string if 'string' in types else structure}"
    options: list[str] = []
    for name in sorted(types):
        kind = name
        if how.kind is Kind.IS_STRING:
            kind = "true" if name == "string" else "false"
        elif name == "integer":
            kind = "number"
        value = string if name == "string" else structure
        if name != "string" and (len(types) > 1 or not schema):
            value = f"{rules.json(_with_definitions(_narrowed(schema, name), root))} {close}"
        options.append(f"{literal(how.middle.format(kind=kind))} {value}")
    return either(options)


def _narrowed(schema: Schema, name: str) -> Schema:
    return {"allOf": [schema, {"type": name}]} if schema else {"type": name}


class _Noted:
    """Rules for a notation that is not JSON. What of a schema has no rule there (lengths, patterns, numbers of items)
    is left open."""

    def __init__(self, rules: Rules, notation: Notation, root: Schema) -> None:
        self._rules = rules
        self._notation = notation
        self._root = root
        self._any: str | None = None

    def arguments(self) -> str:
        brackets, key_end = self._notation.arguments
        return self._object(self._root, 0, brackets, key_end, bare=True)

    def _value(self, schema: Schema, depth: int) -> str:
        schema = self._resolved(schema)
        values = _values(schema)
        if values is not None:
            return either([literal(self._notation.write(value)) for value in values])
        for key in ("anyOf", "oneOf"):
            options = schema.get(key)
            if isinstance(options, list) and options and depth < _DEEPEST:
                return either([self._value(o if isinstance(o, Mapping) else {}, depth + 1) for o in options])
        types = schema_types(schema, self._root)
        if not types or depth >= _DEEPEST:
            return self._anything()
        return either([self._typed(name, schema, depth) for name in sorted(types)])

    def _typed(self, name: str, schema: Schema, depth: int) -> str:
        if name == "object":
            brackets, key_end = self._notation.objects
            return self._object(schema, depth, brackets, key_end, bare=self._notation.bare_keys)
        if name == "array":
            items = schema.get("items")
            item = self._value(items if isinstance(items, Mapping) else {}, depth + 1)
            return self._rules.rule(f'"[" ({item} ({literal(self._notation.comma)} {item})*)? "]"')
        if name in ("integer", "number"):
            bounds = {key: schema[key] for key in _BOUNDS if key in schema}
            return self._rules.json(json.dumps({"type": name, **bounds}))
        return self._leaf(name)

    def _leaf(self, name: str) -> str:
        notation = self._notation
        if name == "boolean":
            return either([literal(notation.write(True)), literal(notation.write(False))])
        if name == "null":
            return literal(notation.write(None))
        if notation.quote is None:
            return self._rules.terminal(r"""/'([^'\\\n]|\\.)*'|"([^"\\\n]|\\.)*"/""")
        return self._rules.rule(f"{literal(notation.quote)} {self._rules.until(notation.quote)}")

    def _object(self, schema: Schema, depth: int, brackets: str, key_end: str, *, bare: bool) -> str:
        notation, rules = self._notation, self._rules
        comma = literal(notation.comma)
        properties = _properties(schema)
        if properties is None:
            name = rules.terminal(r"/[A-Za-z_][A-Za-z0-9_]{0,63}/")
            key = name if bare else self._leaf("string")
            member = f"{key} {literal(key_end)} {self._anything()}"
            return rules.rule(f"{literal(brackets[0])} ({member} ({comma} {member})*)? {literal(brackets[1])}")
        required = _required(schema)
        # Each member is read behind another or as the first one: two rules for all that may follow.
        first, later = '""', '""'
        ordered = sorted(properties.items(), key=lambda item: notation.order(item[0]))
        for name, body in reversed(ordered):
            key = literal((name if bare else notation.write(name)) + key_end)
            member = f"{key} {self._value(body, depth + 1)}"
            rest, first_rest = later, first
            optional = name not in required
            later = rules.rule(f"{comma} {member} {rest}" + (f" | {rest}" if optional else ""))
            first = rules.rule(f"{member} {rest}" + (f" | {first_rest}" if optional else ""))
        return rules.rule(f"{literal(brackets[0])} {first} {literal(brackets[1])}")

    def _anything(self) -> str:
        if self._any is None:
            self._any = self._rules.recursive()
            comma = literal(self._notation.comma)
            brackets, key_end = self._notation.objects
            key = self._leaf("string")
            if self._notation.bare_keys:
                key = self._rules.terminal(r"/[A-Za-z_][A-Za-z0-9_ \-]{0,63}/")
            member = f"{key} {literal(key_end)} {self._any}"
            options = [
                self._leaf("string"),
                self._leaf("boolean"),
                self._leaf("null"),
                self._rules.json('{"type": "number"}'),
                f'"[" ({self._any} ({comma} {self._any})*)? "]"',
                f"{literal(brackets[0])} ({member} ({comma} {member})*)? {literal(brackets[1])}",
            ]
            self._rules.define(self._any, " | ".join(options))
        return self._any

    def _resolved(self, schema: Schema) -> Schema:
        for _ in range(_DEEPEST):
            reference = schema.get("$ref")
            if not isinstance(reference, str) or not reference.startswith("#/"):
                return schema
            found: object = self._root
            for key in reference[2:].split("/"):
                found = found.get(key) if isinstance(found, Mapping) else None
            schema = found if isinstance(found, Mapping) else {}
        return {}


_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
