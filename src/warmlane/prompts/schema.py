"""JSON Schemas of clients as a grammar can enforce them.

Nothing of a schema is refused: what cannot be enforced is left out at the smallest place, and named. The result is text
for a `%json` rule of llguidance; the order of properties, in which they are enforced, stays.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from warmlane.prompts.schema_forms import Document, normalise
from warmlane.prompts.schema_json import NotASchema, Notes, dump, parse_object
from warmlane.prompts.schema_repair import repaired

MAX_CHARS = 500_000
"""Longest schema that is enforced."""

KEPT_CHARS = 50_000
"""A client sends the same tools turn after turn: results of schemas up to this size are remembered."""

__all__ = ["Enforceable", "NotASchema", "enforceable", "enforceable_arguments"]


class Enforceable(NamedTuple):
    """A schema that compiles, and what it leaves out: JSON pointers into the original, with a reason each."""

    schema: str
    warnings: tuple[str, ...]


def enforceable(schema_text: str) -> Enforceable:
    """The schema without what no grammar can enforce. Milliseconds for what people write, and seconds for what is made
    to take long: call it off the event loop. Raises `NotASchema` if the text is no JSON object."""
    return _enforceable(schema_text, arguments=False)


def enforceable_arguments(schema_text: str) -> Enforceable:
    """The same for a tool's parameters: whatever the schema says, its values are objects."""
    return _enforceable(schema_text, arguments=True)


def _enforceable(text: str, *, arguments: bool) -> Enforceable:
    return (_remembered if len(text) <= KEPT_CHARS else _computed)(text, arguments)


def _computed(text: str, arguments: bool) -> Enforceable:
    notes = Notes()
    root = parse_object(text)
    if root is None or len(text) > MAX_CHARS:
        notes.add("", f"is not enforced: it is nested too deeply, or longer than {MAX_CHARS} characters")
        root = {}
    document = normalise(root, notes)
    if arguments:
        document = _of_objects(document, notes)
    return Enforceable(dump(repaired(document, notes)), notes.texts)


_remembered = lru_cache(maxsize=256)(_computed)


def _of_objects(document: Document, notes: Notes) -> Document:
    body = document.body
    types = body.get("type", "object")
    if types != "object" and not (isinstance(types, list) and "object" in types):
        notes.add("/type", "is not enforced: arguments are an object")
        return Document({"type": "object"}, {}, {})
    return Document({**body, "type": "object"}, document.defs, document.places)
