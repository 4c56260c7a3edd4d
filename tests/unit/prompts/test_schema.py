from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from warmlane.prompts.schema import MAX_CHARS, NotASchema, enforceable, enforceable_arguments
from warmlane.prompts.schema_json import MAX_NOTES

BYTES = LLTokenizer("byte")
LIMITS = LLParserLimits(max_items_in_row=10_000)


def kept(schema: object) -> tuple[dict[str, Any], list[str]]:
    """What is left of a schema, and the pointers of what is not."""
    text, warnings = enforceable(json.dumps(schema))
    left = json.loads(text)
    del left["x-guidance"]
    return left, [warning.partition(": ")[0] for warning in warnings]


def accepts(schema_text: str, value: str) -> bool:
    grammar = LLMatcher.grammar_from_json_schema(schema_text)
    matcher = LLMatcher(BYTES, grammar, log_level=0, limits=LIMITS)
    assert not matcher.is_error(), matcher.get_error()
    tokens = list(value.encode())
    return matcher.try_consume_tokens(tokens) == len(tokens) and matcher.is_accepting()


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "string", "pattern": "^[a-z]+\\d$", "maxLength": 10},
        {"type": ["string", "null"], "format": "date-time"},
        {"enum": ["a", 1, None, {"b": [2]}]},
        {"const": {"a": 1.5}},
        {"type": "object", "properties": {"b": {"type": "integer"}, "a": {"const": 1}}, "required": ["a"]},
        {"type": "object", "properties": {"a": True, "b": False}, "additionalProperties": False},
        {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "number", "minimum": 0}}]},
        {"oneOf": [{"type": "string"}, {"type": "integer"}]},
        {"allOf": [{"type": "object", "properties": {"a": {"type": "string"}}}, {"required": ["a"]}]},
        {"type": "object", "additionalProperties": {"type": "string"}, "minProperties": 1, "maxProperties": 3},
        {"type": "object", "patternProperties": {"^a": {"type": "string"}, "^b": {}}},
    ],
)
def test_what_can_be_enforced_stays_as_it_is(schema: dict[str, Any]) -> None:
    left, warnings = kept(schema)
    assert left == schema
    assert warnings == []


def test_annotations_go_in_silence() -> None:
    noise = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": "x",
        "title": "t",
        "description": "d",
        "default": 1,
        "examples": [1],
        "deprecated": True,
        "x-order": 3,
        "uniqueItems": False,
    }
    assert kept({**noise, "type": "string"}) == ({"type": "string"}, [])


@pytest.mark.parametrize(
    ("schema", "left", "pointers"),
    [
        ({"type": "string", "pattern": "^(?=a)b"}, {"type": "string"}, ["/pattern"]),
        ({"type": "string", "pattern": "(a)\\1"}, {"type": "string"}, ["/pattern"]),
        ({"type": "string", "pattern": "x" * 3000}, {"type": "string"}, ["/pattern"]),
        ({"type": "string", "format": "iri"}, {"type": "string"}, ["/format"]),
        ({"type": "array", "uniqueItems": True}, {"type": "array"}, ["/uniqueItems"]),
        ({"not": {"type": "string"}}, {}, ["/not"]),
        ({"if": {}, "then": {}, "else": {}}, {}, ["/if", "/then", "/else"]),
        ({"type": "string", "colour": "red"}, {"type": "string"}, ["/colour"]),
        ({"type": "any"}, {}, ["/type"]),
        ({"type": "string", "minLength": -1}, {"type": "string"}, ["/minLength"]),
        ({"type": "string", "maxLength": 3.0}, {"type": "string", "maxLength": 3}, []),
        ({"properties": []}, {}, ["/properties"]),
        ({"enum": []}, {}, ["/enum"]),
        ({"enum": ["\ud800", "a"]}, {"enum": ["a"]}, ["/enum"]),
        ({"const": "\ud800"}, {}, ["/const"]),
        ({"properties": {"\ud800": {}, "a": {}}}, {"properties": {"a": {}}}, ["/properties"]),
        ({"$ref": "https://example.com/other.json"}, {}, ["/$ref"]),
        ({"$ref": "#/$defs/none"}, {}, ["/$ref"]),
        ({"$ref": "#"}, {}, ["/$ref"]),
        ({"type": "integer", "minimum": 10**30}, {"type": "integer"}, ["/minimum"]),
        ({"required": True, "type": "string"}, {"type": "string"}, ["/required"]),
        ({"properties": {"a": 3}}, {"properties": {"a": True}}, ["/properties/a"]),
        (
            {"oneOf": [{"type": "string"}, {"type": "string", "minLength": 2}]},
            {"anyOf": [{"type": "string"}, {"type": "string", "minLength": 2}]},
            ["/oneOf"],
        ),
        (
            {"type": "object", "patternProperties": {"^a": {"type": "string"}, "b$": {}}},
            {"type": "object"},
            ["/patternProperties"],
        ),
        (
            {"type": "object", "properties": {"a": {}, "b": {}}, "minProperties": 2, "maxProperties": 2},
            {"type": "object", "properties": {"a": {}, "b": {}}},
            ["/minProperties", "/maxProperties"],
        ),
        (
            {"type": "object", "properties": {"a/~b": {"type": "array", "items": {"pattern": "(?<!x)y"}}, "c": {}}},
            {"type": "object", "properties": {"a/~b": {"type": "array", "items": {}}, "c": {}}},
            ["/properties/a~1~0b/items/pattern"],
        ),
    ],
)
def test_what_cannot_goes_at_the_smallest_place_and_is_named(
    schema: dict[str, Any], left: dict[str, Any], pointers: list[str]
) -> None:
    assert kept(schema) == (left, pointers)


@pytest.mark.parametrize(
    ("schema", "left"),
    [
        ({"minimum": 1, "exclusiveMinimum": True}, {"exclusiveMinimum": 1}),
        ({"maximum": 1, "exclusiveMaximum": False}, {"maximum": 1}),
        ({"items": [{"type": "string"}, {}]}, {"prefixItems": [{"type": "string"}, {}]}),
        ({"items": [{}], "additionalItems": False}, {"prefixItems": [{}], "items": False}),
        ({"items": {}, "additionalItems": False}, {"items": {}}),
        ({"type": "string", "nullable": True}, {"type": ["string", "null"]}),
        ({"type": "string", "enum": ["a"], "nullable": True}, {"type": ["string", "null"], "enum": ["a", None]}),
    ],
)
def test_older_forms_mean_what_they_meant(schema: dict[str, Any], left: dict[str, Any]) -> None:
    assert kept(schema) == (left, [])


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"$ref": "#/definitions/x"}}, "definitions": {"x": {"type": "integer"}}},
        {"properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"$ref": "#/$defs/y"}, "y": {"type": "integer"}}},
        {"properties": {"a": {"$ref": "#/properties/b"}, "b": {"type": "integer"}}},
        {"properties": {"a": {"$ref": "#/$defs/x%20~1~0"}}, "$defs": {"x /~": {"type": "integer"}}},
        {"properties": {"a": {"$ref": "#x"}}, "$defs": {"q": {"$anchor": "x", "type": "integer"}}},
        {"properties": {"a": {"$ref": "#x"}}, "definitions": {"q": {"id": "#x", "type": "integer"}}},
        {"$id": "https://e.com/s", "properties": {"a": {"$ref": "https://e.com/s#/$defs/x"}}}
        | {"$defs": {"x": {"type": "integer"}}},
        {"properties": {"a": {"$ref": "#/anyOf/0"}}, "anyOf": [{"type": "integer"}, {"type": "object"}]},
    ],
)
def test_references_are_followed_wherever_they_lead(schema: dict[str, Any]) -> None:
    text, warnings = enforceable_arguments(json.dumps(schema))
    assert warnings == ()
    assert accepts(text, '{"a": 1}')
    assert not accepts(text, '{"a": "x"}')


def test_a_schema_may_contain_itself() -> None:
    tree = {
        "$ref": "#/$defs/node",
        "$defs": {
            "node": {
                "type": "object",
                "properties": {"v": {"type": "integer"}, "kids": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
                "required": ["v"],
                "additionalProperties": False,
            }
        },
    }
    text, warnings = enforceable(json.dumps(tree))
    assert warnings == ()
    assert accepts(text, '{"v": 1, "kids": [{"v": 2, "kids": []}]}')
    assert not accepts(text, '{"v": 1, "kids": [{"v": "x"}]}')


def test_what_fails_in_a_definition_is_taken_out_there() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/x"}, "b": {"$ref": "#/$defs/x"}},
        "$defs": {"x": {"type": "string", "pattern": "(?!a)", "maxLength": 2}},
    }
    text, warnings = enforceable(json.dumps(schema))
    assert [w.partition(": ")[0] for w in warnings] == ["/$defs/x/pattern"]
    assert accepts(text, '{"a": "xy"}')
    assert not accepts(text, '{"a": "xyz"}')


def test_what_fails_only_together_is_found() -> None:
    schema = {"allOf": [{"$ref": "#"}, {"type": "object"}]}
    text, warnings = enforceable(json.dumps(schema))
    assert [w.partition(": ")[0] for w in warnings] == ["/allOf/0/$ref"]
    assert accepts(text, '{"a": 1}')
    assert not accepts(text, "[]")


def test_300_properties_keep_their_order() -> None:
    properties: dict[str, Any] = {f"p{(i * 7919) % 300}": {"type": ["string", "integer"]} for i in range(300)}
    left, warnings = kept({"type": "object", "properties": properties, "required": list(properties)})
    assert list(left["properties"]) == list(properties)
    assert warnings == []


def test_objects_with_more_properties_than_can_be_followed_are_any_object() -> None:
    left, warnings = kept({"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(2500)}})
    assert left == {"type": "object"}
    assert warnings == ["/properties"]


@pytest.mark.parametrize("text", ["", "null", "[]", "3", '"{}"', "{", '{"a": NaN}', "{'a': 1}"])
def test_what_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(NotASchema):
        enforceable(text)


@pytest.mark.parametrize("levels", [45, 90, 500, 100_000])
def test_what_is_nested_too_deeply_allows_anything_down_there(levels: int) -> None:
    text = '{"type":"array","items":' * levels + '{"type":"string"}' + "}" * levels
    schema, warnings = enforceable(text)
    assert len(warnings) == 1
    assert accepts(schema, "[[[1]]]") == (levels > 900)
    assert accepts(schema, "[" * 60 + "1" + "]" * 60)


def test_a_schema_too_long_allows_anything() -> None:
    schema, warnings = enforceable(json.dumps({"type": "object", "enum": ["x" * MAX_CHARS]}))
    assert accepts(schema, "[1]")
    assert len(warnings) == 1


def test_a_thousand_bad_patterns_end_and_are_counted() -> None:
    schema = {"type": "object", "properties": {f"p{i}": {"type": "string", "pattern": "(?!x)"} for i in range(1000)}}
    text, warnings = enforceable(json.dumps(schema))
    assert accepts(text, '{"p0": "xyz"}')
    assert len(warnings) == MAX_NOTES + 1
    assert "more" in warnings[-1]


def test_spaces_come_to_an_end() -> None:
    text, _ = enforceable('{"type": "object", "properties": {"a": {}}}')
    assert accepts(text, '{\n    "a": [1,\t2]\n}')
    assert not accepts(text, "{" + " " * 65 + "}")


@pytest.mark.parametrize(
    ("schema", "pointers"),
    [
        ({}, []),
        ({"type": "object", "properties": {"a": {"type": "integer"}}}, []),
        ({"type": ["object", "null"]}, []),
        ({"anyOf": [{"type": "object", "required": ["a"]}, {"type": "string"}]}, []),
        ({"type": "string"}, ["/type"]),
        ({"enum": [1, 2]}, ["/enum"]),
        ({"$ref": "#/$defs/x", "$defs": {"x": {"type": "object"}}}, []),
    ],
)
def test_arguments_are_objects(schema: dict[str, Any], pointers: list[str]) -> None:
    text, warnings = enforceable_arguments(json.dumps(schema))
    assert [w.partition(": ")[0] for w in warnings] == pointers
    assert accepts(text, '{"a": 1}')
    assert not accepts(text, "1")
    assert not accepts(text, "null")


keywords = st.sampled_from(
    "type properties required additionalProperties items prefixItems anyOf oneOf allOf not enum const pattern format "
    "minLength maxLength minimum maximum exclusiveMinimum multipleOf minItems maxItems minProperties patternProperties "
    "$ref $defs nullable title if then unknown dependencies".split()
)
scalars = st.sampled_from(
    (None, True, False, 0, 1, -1, 2.5, 10**25, "string", "object", "array", "#", "#/$defs/a", "^a", "(?=a)", "date", "")
)
junk = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.one_of(keywords, st.sampled_from("ab")), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(schema=st.dictionaries(keywords, junk, max_size=5))
def test_anything_comes_out_as_something_that_compiles(schema: dict[str, Any]) -> None:
    for function in (enforceable, enforceable_arguments):
        text, _ = function(json.dumps(schema))
        grammar = LLMatcher.grammar_from_json_schema(text)
        matcher = LLMatcher(BYTES, grammar, log_level=0, limits=LIMITS)
        assert not matcher.is_error(), matcher.get_error()
        assert matcher.compute_bitmask()
        assert not matcher.is_error(), matcher.get_error()
        again = function(text)
        assert again.warnings == ()
        assert again.schema == text
