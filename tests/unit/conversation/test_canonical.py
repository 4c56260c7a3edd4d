"""Tools that say the same are spelled the same."""

from __future__ import annotations

import json
import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from warmlane.conversation.canonical import canonical_schema, canonical_tools
from warmlane.conversation.tools import Tool

KEYS = st.sampled_from(["type", "description", "properties", "required", "items", "$defs", "default", "a", "b", "ü"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
SCHEMAS = st.dictionaries(KEYS, VALUES, max_size=5)


def shuffled(value: Any, rng: random.Random) -> Any:
    """The same JSON with the keys of its objects in another order."""
    if isinstance(value, list):
        return [shuffled(item, rng) for item in value]
    if not isinstance(value, dict):
        return value
    keys = list(value)
    rng.shuffle(keys)
    return {key: shuffled(value[key], rng) for key in keys}


@given(SCHEMAS, st.randoms(use_true_random=False))
def test_the_order_of_keys_does_not_matter_and_nothing_else_changes(schema: Any, rng: random.Random) -> None:
    spelled = canonical_schema(json.dumps(schema))
    assert json.loads(spelled) == schema
    assert canonical_schema(json.dumps(shuffled(schema, rng))) == spelled
    assert canonical_schema(spelled) == spelled


@given(st.lists(SCHEMAS, min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_the_order_of_tools_does_not_matter(schemas: list[Any], rng: random.Random) -> None:
    tools = [Tool(name=f"t{index}", parameters=json.dumps(schema)) for index, schema in enumerate(schemas)]
    canonical, _ = canonical_tools(tools)
    rng.shuffle(tools)
    assert canonical_tools(tools)[0] == canonical
    assert canonical_tools(canonical) == (canonical, ())


def test_properties_follow_required_then_their_names() -> None:
    properties = {"z": {}, "thought": {}, "command": {}, "a": {}}
    schema = {"required": ["thought", "command"], "properties": properties, "type": "object"}
    spelled = json.loads(canonical_schema(json.dumps(schema)))
    assert list(spelled) == ["type", "properties", "required"]
    assert list(spelled["properties"]) == ["thought", "command", "a", "z"]


def test_data_is_not_read_as_a_schema() -> None:
    default = {"properties": {"b": 1, "a": 2}, "required": ["b"]}
    spelled = json.loads(canonical_schema(json.dumps({"default": default})))
    assert list(spelled["default"]["properties"]) == ["a", "b"]


def test_what_was_changed_is_told() -> None:
    tidy = Tool(name="b", parameters='{"type":"object","properties":{}}')
    odd = Tool(name="a", parameters='{"properties":{},"type":"object"}')
    assert canonical_tools([tidy])[1] == ()
    assert canonical_tools([tidy, odd])[1] == ("tools: order", "tools.a: key order")
