"""Taking out of a JSON Schema the least that has to go so that it can be compiled.

A schema is tried as a whole first; what fails is taken apart until the keyword is found, so that a pattern nobody can
compile costs its own string its pattern and nothing else. Work is bounded by a count of trials and of characters tried,
not by time: the same schema always comes out the same.
"""

from __future__ import annotations

from functools import cache

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from warmlane.prompts.schema_forms import LISTS, MAPS, SINGLES, Document
from warmlane.prompts.schema_json import JsonValue, Notes, Schema, below, dump

MAX_TRIALS = 3000
MAX_CHARS_TRIED = 2_000_000
"""A trial takes about 0.1 ms, and about a microsecond a character."""

_OPTIONS: JsonValue = {"whitespace_pattern": "[ \\n\\r\\t]{1,64}"}
"""A model that has lost its thread writes spaces without end; this many at one place end it."""

_DETAILS = (
    "format",
    "pattern",
    "multipleOf",
    "patternProperties",
    "minProperties",
    "maxProperties",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
)
_SHAPE = (
    "oneOf",
    "allOf",
    "anyOf",
    "$ref",
    "enum",
    "const",
    "required",
    "additionalProperties",
    "items",
    "prefixItems",
    "properties",
    "type",
)
"""Every keyword there can be, those that say least first."""

_QUIET = 0
_TOO_LONG = "is not enforced: finding out what is wrong with the schema takes too long"


def repaired(document: Document, notes: Notes) -> dict[str, JsonValue]:
    """The schema in one piece, without what cannot be compiled; what that was goes to `notes`."""
    return _Repair(document, notes).whole()


class _Repair:
    def __init__(self, document: Document, notes: Notes) -> None:
        self._document = document
        self._notes = notes
        self._limits = LLParserLimits(
            max_items_in_row=10_000, max_lexer_states=50_000, max_grammar_size=50_000, verbose_errors=False
        )
        self._n_trials = 0
        self._n_chars = 0

    def whole(self) -> dict[str, JsonValue]:
        body, defs = self._document.body, self._document.defs
        if self._fault(body, defs) is None:
            return _assembled(body, defs)
        # Each definition by itself first, with the others allowing anything: what fails in it is its own.
        anything: dict[str, Schema] = dict.fromkeys(defs, True)
        for known in (anything, None):
            defs = {n: self._part(s, self._document.places[n], known or defs) for n, s in defs.items()}
            body = _object(self._part(body, "", known or defs))
            reason = self._fault(body, defs)
            if reason is None:
                return _assembled(body, defs)
        self._notes.add("", f"is not enforced: {reason}")
        return _assembled({"type": "object"} if body.get("type") == "object" else {}, {})

    def _part(self, schema: Schema, at: str, defs: dict[str, Schema]) -> Schema:
        """The schema at `at`, repaired from the inside out."""
        if isinstance(schema, bool):
            return schema
        if self._is_spent:
            self._notes.add(at, _TOO_LONG)
            return True
        reason = self._fault(schema, defs)
        if reason is None:
            return schema
        whole = dict(schema)
        for key, value in schema.items():
            if key in MAPS and isinstance(value, dict):
                whole[key] = {k: self._part(_schema(v), below(at, key, k), defs) for k, v in value.items()}
            elif key in LISTS and isinstance(value, list):
                whole[key] = [self._part(_schema(v), below(at, key, i), defs) for i, v in enumerate(value)]
            elif key in SINGLES:
                whole[key] = self._part(_schema(value), below(at, key), defs)
        reason = self._fault(whole, defs)
        return whole if reason is None else self._without(whole, at, reason, defs)

    def _without(self, schema: dict[str, JsonValue], at: str, reason: str, defs: dict[str, Schema]) -> Schema:
        """The schema without the keywords that fail, though what they hold is sound."""
        if "oneOf" in schema and "anyOf" not in schema:
            loose = {"anyOf" if key == "oneOf" else key: value for key, value in schema.items()}
            if self._fault(loose, defs) is None:
                self._notes.add(below(at, "oneOf"), "is enforced as anyOf")
                return loose
        for group in (_DETAILS, _DETAILS + _SHAPE):
            dropped = {key for key in group if key in schema}
            if dropped and not self._is_spent and self._fault(_but(schema, dropped), defs) is None:
                break
        else:
            self._notes.add(at, _TOO_LONG if self._is_spent else f"is not enforced: {reason}")
            return True
        # Back with whatever does no harm.
        for key in reversed(group):
            if key in dropped and not self._is_spent and self._fault(_but(schema, dropped - {key}), defs) is None:
                dropped.remove(key)
        for key in schema:
            if key in dropped:
                self._notes.add(below(at, key), f"is not enforced: {reason}")
        return _but(schema, dropped)

    @property
    def _is_spent(self) -> bool:
        return self._n_trials > MAX_TRIALS or self._n_chars > MAX_CHARS_TRIED

    def _fault(self, schema: dict[str, JsonValue], defs: dict[str, Schema]) -> str | None:
        """Why the schema cannot be compiled, or begun; None if it can."""
        self._n_trials += 1
        try:
            text = dump(_assembled(schema, defs))
            self._n_chars += len(text)
            grammar = LLMatcher.grammar_from_json_schema(text)
        except (ValueError, RecursionError) as error:
            return _reason(str(error))
        matcher = LLMatcher(_tokenizer(), grammar, log_level=_QUIET, limits=self._limits)
        if not matcher.is_error():
            matcher.compute_bitmask()
        return _reason(matcher.get_error()) if matcher.is_error() else None


@cache
def _tokenizer() -> LLTokenizer:
    return LLTokenizer("byte")


def _assembled(body: dict[str, JsonValue], defs: dict[str, Schema]) -> dict[str, JsonValue]:
    whole: dict[str, JsonValue] = {"x-guidance": _OPTIONS, **body}
    if defs:
        whole["$defs"] = dict(defs)
    return whole


def _but(schema: dict[str, JsonValue], keys: set[str]) -> dict[str, JsonValue]:
    return {key: value for key, value in schema.items() if key not in keys}


def _schema(value: JsonValue) -> Schema:
    return value if isinstance(value, bool | dict) else True


def _object(schema: Schema) -> dict[str, JsonValue]:
    return schema if isinstance(schema, dict) else {}


def _reason(error: str) -> str:
    """llguidance's message in one line of at most 160 characters."""
    return " ".join(error.split())[:160] or "no value is valid"
