"""One form for the many in which JSON Schemas come: draft 2020-12, with every reference into `$defs`.

Drafts 4 to 2019-09 and OpenAPI's `nullable` are rewritten, annotations left out, malformed keywords dropped. What is
left are keywords that can be compiled in principle; whether these can is `schema_repair`'s to find out.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from warmlane.prompts.schema_json import JsonValue, Notes, Schema, as_count, below, is_number, writable
from warmlane.prompts.schema_refs import References

MAX_DEPTH = 40
MAX_NODES = 5000
MAX_PROPERTIES = 2000
MAX_PATTERN_CHARS = 2000

ANNOTATIONS = frozenset(
    "$schema $id id $anchor $dynamicAnchor $recursiveAnchor $vocabulary $comment $defs definitions title description "
    "default example examples deprecated readOnly writeOnly contentMediaType contentEncoding contentSchema "
    "discriminator externalDocs xml".split()
)
"""Say nothing about what is valid."""

MAPS = ("properties", "patternProperties")
LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
SINGLES = ("items", "additionalProperties")

_COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_REWRITTEN = ("additionalItems", "nullable")
_TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
_UNENFORCED = frozenset(
    "not if then else dependencies dependentRequired dependentSchemas propertyNames contains minContains maxContains "
    "uniqueItems unevaluatedProperties unevaluatedItems $dynamicRef $recursiveRef disallow extends divisibleBy".split()
)


@dataclass(frozen=True, slots=True)
class Document:
    """A schema in one form: `body`, and what its references name in `defs`. `places` are the pointers of the latter in
    the schema as it came."""

    body: dict[str, JsonValue]
    defs: dict[str, Schema]
    places: dict[str, str]


def normalise(root: dict[str, JsonValue], notes: Notes) -> Document:
    """Rewrite a schema; what has to be left out of it goes to `notes`."""
    return _Normaliser(root, notes).document()


class _Normaliser:
    def __init__(self, root: dict[str, JsonValue], notes: Notes) -> None:
        self._root = root
        self._notes = notes
        self._references = References(root)
        self._names: dict[str, str] = {}
        self._waiting: deque[tuple[str, str, JsonValue]] = deque()
        self._n_nodes = 0

    def document(self) -> Document:
        body = self._schema(self._root, "", 0)
        defs: dict[str, Schema] = {}
        while self._waiting:
            name, place, node = self._waiting.popleft()
            defs[name] = self._schema(node, place, 0)
        places = {name: place for place, name in self._names.items()}
        return Document(body if isinstance(body, dict) else {}, defs, places)

    def _schema(self, node: JsonValue, at: str, depth: int) -> Schema:
        if isinstance(node, bool):
            return node
        if not isinstance(node, dict):
            self._notes.add(at, "is no schema, so anything is allowed")
            return True
        self._n_nodes += 1
        if depth > MAX_DEPTH or self._n_nodes > MAX_NODES:
            self._notes.add(at, f"is beyond {MAX_NODES} schemas or {MAX_DEPTH} levels, so anything is allowed")
            return True
        clean: dict[str, JsonValue] = {}
        for key, value in node.items():
            if key in ANNOTATIONS or key.startswith("x-"):
                continue
            self._keyword(clean, key, value, at, depth + 1)
        self._old_forms(clean, node, at, depth + 1)
        return clean

    def _keyword(self, clean: dict[str, JsonValue], key: str, value: JsonValue, at: str, depth: int) -> None:
        place = below(at, key)
        if key in MAPS:
            self._map(clean, key, value, place, depth)
        elif key in LISTS:
            if isinstance(value, list) and value:
                clean[key] = [self._schema(v, below(place, i), depth) for i, v in enumerate(value)]
            else:
                self._malformed(place)
        elif key == "items" and isinstance(value, list):
            if value:
                clean["prefixItems"] = [self._schema(v, below(place, i), depth) for i, v in enumerate(value)]
        elif key in SINGLES:
            clean[key] = self._schema(value, place, depth)
        elif key == "$ref":
            self._ref(clean, value, place)
        elif key in _UNENFORCED:
            if value is not False:
                self._notes.add(place, "is not enforced")
        elif key not in _REWRITTEN:
            self._plain(clean, key, value, place)

    def _map(self, clean: dict[str, JsonValue], key: str, value: JsonValue, place: str, depth: int) -> None:
        if not isinstance(value, dict):
            self._malformed(place)
            return
        if len(value) > MAX_PROPERTIES:
            self._notes.add(place, f"has {len(value)} entries; up to {MAX_PROPERTIES} are enforced, so none is")
            return
        schemas: dict[str, JsonValue] = {}
        for name, schema in value.items():
            if writable(name):
                schemas[name] = self._schema(schema, below(place, name), depth)
            else:
                self._notes.add(place, "has a name that is no text, which is left out")
        clean[key] = schemas

    def _ref(self, clean: dict[str, JsonValue], value: JsonValue, place: str) -> None:
        target = self._references.resolve(value) if isinstance(value, str) else None
        if target is None:
            self._notes.add(place, "is not enforced: it leads nowhere in this schema")
            return
        name = self._names.get(target.pointer)
        if name is None:
            name = self._names[target.pointer] = f"d{len(self._names)}"
            self._waiting.append((name, target.pointer, target.node))
        clean["$ref"] = f"#/$defs/{name}"

    def _plain(self, clean: dict[str, JsonValue], key: str, value: JsonValue, place: str) -> None:
        """A keyword whose value is no schema."""
        if key in _COUNTS:
            value = as_count(value)
            sound = value is not None
            if value == 0 and key.startswith("min"):
                return
        elif key in _BOUNDS:
            if isinstance(value, bool):
                return
            sound = is_number(value)
        elif key == "multipleOf":
            sound = is_number(value) and isinstance(value, int | float) and value > 0
        elif key in ("pattern", "format"):
            sound = isinstance(value, str) and writable(value)
            if sound and isinstance(value, str) and len(value) > MAX_PATTERN_CHARS:
                self._notes.add(place, f"has {len(value)} characters; at most {MAX_PATTERN_CHARS} are enforced")
                return
        elif key == "required":
            sound = isinstance(value, list) and all(isinstance(v, str) and writable(v) for v in value)
        elif key == "enum":
            sound = isinstance(value, list) and bool(value)
            value = self._writable_members(value, place) if isinstance(value, list) else value
        elif key == "const":
            sound = writable(value)
        elif key == "type":
            value = _types(value)
            sound = value is not None
        else:
            self._notes.add(place, "is unknown and ignored")
            return
        if sound:
            clean[key] = value
        else:
            self._malformed(place)

    def _writable_members(self, values: list[JsonValue], place: str) -> list[JsonValue]:
        kept = [v for v in values if writable(v)]
        if len(kept) < len(values):
            self._notes.add(place, "has members that are no text, which are left out")
        return kept

    def _old_forms(self, clean: dict[str, JsonValue], node: dict[str, JsonValue], at: str, depth: int) -> None:
        """Draft 4's exclusive bounds, tuples before 2020-12, and OpenAPI's `nullable`."""
        for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
            if node.get(exclusive) is True and bound in clean:
                clean[exclusive] = clean.pop(bound)
        if isinstance(node.get("items"), list) and "additionalItems" in node:
            clean["items"] = self._schema(node["additionalItems"], below(at, "additionalItems"), depth)
        if node.get("nullable") is True:
            types, members = clean.get("type"), clean.get("enum")
            if isinstance(types, str) and types != "null":
                clean["type"] = [types, "null"]
            elif isinstance(types, list) and "null" not in types:
                clean["type"] = [*types, "null"]
            if isinstance(members, list) and None not in members:
                clean["enum"] = [*members, None]

    def _malformed(self, place: str) -> None:
        self._notes.add(place, "has no value that JSON Schema knows, and is ignored")


def _types(value: JsonValue) -> JsonValue:
    """The value of `type` as it may stand; None for what is none."""
    if isinstance(value, str):
        return value if value in _TYPES else None
    if isinstance(value, list) and value and all(isinstance(v, str) and v in _TYPES for v in value):
        return list(dict.fromkeys(v for v in value if isinstance(v, str)))
    return None
