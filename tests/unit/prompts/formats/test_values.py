from __future__ import annotations

import json

import pytest

from warmlane.conversation.tools import Tool
from warmlane.prompts.formats.values import ToolTypes, told_json, value_json


@pytest.mark.parametrize(
    ("text", "types", "value"),
    [
        ("5", {"string"}, "5"),
        ("5", {"integer"}, 5),
        ("5", {"string", "integer"}, 5),
        ("02139", {"integer", "string"}, "02139"),
        ("1e20", {"number"}, 1e20),
        (" 5 ", {"integer"}, 5),
        ("five", {"integer"}, "five"),
        ("True", {"boolean"}, True),
        ("true", {"string"}, "true"),
        ("null", {"string", "null"}, None),
        ("None", {"integer", "null"}, None),
        ("null", {"string"}, "null"),
        ('{"a": [1]}', {"object"}, {"a": [1]}),
        ("{'a': True}", {"object"}, {"a": True}),
        ("[1, 2", {"array"}, "[1, 2"),
        ('{"a": 1}', {"string"}, '{"a": 1}'),
        ("12", set(), 12),
        ("hello", set(), "hello"),
        ('{"a": NaN}', {"object"}, '{"a": NaN}'),
        ("7", {"object"}, 7),
        ("  two  ", {"string", "null"}, "  two  "),
    ],
)
def test_a_value_is_of_a_type_its_schema_allows(text: str, types: set[str], value: object) -> None:
    assert json.loads(value_json(text, frozenset(types))) == value


@pytest.mark.parametrize(("text", "value"), [('"a\\n"', "a\n"), ("3", 3), ("x", "x"), ('"open', '"open'), ("[]", [])])
def test_a_value_told_to_be_json(text: str, value: object) -> None:
    assert json.loads(told_json(text)) == value


def test_types_are_found_through_references_and_unions() -> None:
    schema = {
        "type": "object",
        "properties": {
            "plain": {"type": "string"},
            "listed": {"type": ["integer", "null"]},
            "any": {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/point"}]},
            "one": {"enum": ["a", 1, None]},
            "const": {"const": True},
            "loop": {"$ref": "#/$defs/loop"},
            "open": {},
        },
        "$defs": {"point": {"type": "object"}, "loop": {"$ref": "#/$defs/loop"}},
    }
    types = ToolTypes([Tool(name="t", parameters=json.dumps(schema)), Tool(name="broken", parameters="{")])
    found = {name: set(types.of("t", name)) for name in (*schema["properties"], "absent")}  # type: ignore[misc]
    assert found == {
        "plain": {"string"},
        "listed": {"integer", "null"},
        "any": {"string", "object"},
        "one": {"string", "integer", "null"},
        "const": {"boolean"},
        "loop": set(),
        "open": set(),
        "absent": set(),
    }
    assert types.knows("broken")
    assert not types.of("broken", "x")
