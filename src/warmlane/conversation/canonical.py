"""One spelling for tools that say the same, so that the prompts they open share a prefix.

A client that keeps its tools in a map sends them, and the keys of their schemas, in another order each time; every
token behind the first difference is then new. Tools are put in order by name, keys in a fixed order; arrays keep
theirs, which has a meaning.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

from msgspec import structs

from warmlane.conversation.tools import Tool

_FIRST = ("type", "title", "description", "enum", "const", "default", "format")
_LAST = ("items", "properties", "required", "additionalProperties", "$schema", "$defs", "definitions")
_RANKS = {key: rank - len(_FIRST) for rank, key in enumerate(_FIRST)} | {
    key: rank + 1 for rank, key in enumerate(_LAST)
}
"""The order in which schemas are usually written, and models have read them; other keywords come between, by name."""

_MAPS = frozenset({"$defs", "definitions", "patternProperties", "dependentSchemas"})
"""Keywords whose value maps names to schemas."""

_DATA = frozenset({"const", "default", "enum", "examples"})
"""Keywords whose value is data and no schema."""


def canonical_tools(tools: Sequence[Tool]) -> tuple[tuple[Tool, ...], tuple[str, ...]]:
    """The tools in their canonical order and spelling, and what was changed, in words."""
    spelled: list[Tool] = []
    changes: list[str] = []
    for tool in tools:
        parameters = canonical_schema(tool.parameters)
        if parameters != tool.parameters:
            changes.append(f"tools.{tool.name}: key order")
        spelled.append(structs.replace(tool, parameters=parameters))
    ordered = sorted(spelled, key=lambda tool: tool.name)
    if ordered != spelled:
        changes.insert(0, "tools: order")
    return tuple(ordered), tuple(changes)


def canonical_schema(text: str) -> str:
    """The JSON text of a JSON Schema with its keys in canonical order.

    The properties of an object follow its `required`, in whose order their author thought of them, then their names:
    a model writes arguments in the order in which it read the properties.
    """
    return json.dumps(_schema(json.loads(text)), ensure_ascii=False, separators=(",", ":"))


def _schema(value: object) -> object:
    if isinstance(value, list):
        return [_schema(item) for item in value]
    if not isinstance(value, dict):
        return value
    keywords = sorted(value, key=lambda key: (_RANKS.get(key, 0), key))
    return {key: _keyword(key, value[key], value.get("required")) for key in keywords}


def _keyword(key: str, value: object, required: object) -> object:
    if key in _DATA:
        return _data(value)
    if key == "properties" and isinstance(value, dict):
        return _map(value, [name for name in required if isinstance(name, str)] if isinstance(required, list) else ())
    if key in _MAPS and isinstance(value, dict):
        return _map(value, ())
    return _schema(value)


def _map(schemas: Mapping[str, object], first: Iterable[str]) -> dict[str, object]:
    ranks = {name: rank for rank, name in enumerate(dict.fromkeys(first))}
    return {name: _schema(schemas[name]) for name in sorted(schemas, key=lambda n: (ranks.get(n, len(ranks)), n))}


def _data(value: object) -> object:
    if isinstance(value, list):
        return [_data(item) for item in value]
    return {key: _data(value[key]) for key in sorted(value)} if isinstance(value, dict) else value
