"""Argument values that a family writes as bare text, as the JSON their tool's schema wants."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Iterator, Mapping

from warmlane.conversation.tools import Tool
from warmlane.prompts.formats.json_text import as_word, escaped

_JSON_TYPES: tuple[tuple[type, str], ...] = (
    (bool, "boolean"),
    (int, "integer"),
    (float, "number"),
    (str, "string"),
    (list, "array"),
    (dict, "object"),
)
_MAX_REFERENCES = 16
_MAX_PYTHON = 20_000
"""Longest text tried as a Python literal; longer ones are JSON or strings."""


def quoted(text: str) -> str:
    """`text` as a JSON string."""
    return f'"{escaped(text)}"'


class ToolTypes:
    """Which JSON types the parameters of some tools may have. An unknown parameter, or one whose schema does not say,
    has none."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        self._tools = {tool.name: _parameters(tool) for tool in tools}

    def knows(self, name: str) -> bool:
        return name in self._tools

    def of(self, tool: str, parameter: str) -> frozenset[str]:
        root = self._tools.get(tool, {})
        properties = root.get("properties")
        schema = properties.get(parameter) if isinstance(properties, Mapping) else None
        return schema_types(schema, root)


def schema_types(schema: object, root: Mapping[str, object]) -> frozenset[str]:
    """The JSON types that a schema, part of `root`, allows by name; none if it does not say."""
    return frozenset(_types(schema, root, _MAX_REFERENCES))


def told_json(text: str) -> str:
    """The JSON of a value that was told to be JSON; a string if it is none."""
    bare = text.strip()
    if bare[:1] == '"':
        try:
            return json.dumps(json.loads(bare), ensure_ascii=False)
        except ValueError:
            return quoted(text)
    return value_json(text, frozenset())


def value_json(text: str, types: frozenset[str]) -> str:
    """The JSON of a value written as `text`, of one of `types` where it can be read as such; a string otherwise.

    Text that is a word of JSON (`null`, `12`) is that word wherever the schema allows it beside strings.
    """
    if types == {"string"}:
        return quoted(text)
    bare = text.strip()
    lowered = bare.lower()
    if lowered in ("null", "none") and (not types or "null" in types):
        return "null"
    if lowered in ("true", "false") and (not types or "boolean" in types):
        return lowered
    word = as_word(bare)
    if word == bare and bare[:1] in "-0123456789" and (not types or types & {"integer", "number"}):
        return bare
    if bare[:1] in ("{", "[") and (not types or types & {"object", "array"}):
        structure = _structure(bare)
        if structure is not None:
            return structure
    if "string" in types or not types:
        return quoted(text)
    return _as_it_stands(bare) or quoted(text)


def _as_it_stands(bare: str) -> str | None:
    """The schema is not met: whatever JSON the text is, for the agent to refuse."""
    return as_word(bare) or (_structure(bare) if bare[:1] in ("{", "[") else None)


def _structure(bare: str) -> str | None:
    try:
        json.loads(bare, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return _python(bare)
    return bare


def _python(bare: str) -> str | None:
    """Some templates print structures the way Python does."""
    if len(bare) > _MAX_PYTHON:
        return None
    try:
        return json.dumps(ast.literal_eval(bare), ensure_ascii=False, allow_nan=False)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return None


def _refuse(word: str) -> object:
    raise ValueError(word)


def _parameters(tool: Tool) -> Mapping[str, object]:
    try:
        schema = json.loads(tool.parameters)
    except (ValueError, RecursionError):
        return {}
    return schema if isinstance(schema, dict) else {}


def _types(schema: object, root: Mapping[str, object], references: int) -> Iterator[str]:
    if not isinstance(schema, Mapping) or references <= 0:
        return
    named = schema.get("type")
    if isinstance(named, str):
        yield named
    elif isinstance(named, list):
        yield from (name for name in named if isinstance(name, str))
    elif "enum" in schema or "const" in schema:
        listed = schema.get("enum")
        values = listed if isinstance(listed, list) else [schema.get("const")]
        yield from map(_type_of, values)
    else:
        for key in ("anyOf", "oneOf", "allOf"):
            options = schema.get(key)
            for option in options if isinstance(options, list) else ():
                yield from _types(option, root, references - 1)
        yield from _types(_referenced(schema.get("$ref"), root), root, references - 1)


def _type_of(value: object) -> str:
    return next((name for kind, name in _JSON_TYPES if isinstance(value, kind)), "null")


def _referenced(reference: object, root: Mapping[str, object]) -> object:
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return None
    found: object = root
    for key in reference[2:].split("/"):
        if not isinstance(found, Mapping):
            return None
        found = found.get(key.replace("~1", "/").replace("~0", "~"))
    return found
