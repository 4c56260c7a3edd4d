"""`response_format`: the structure the reply's text must have."""

from __future__ import annotations

from pydantic import Field

from warmlane.api.fields import Lenient, refuse
from warmlane.api.tools import schema_format
from warmlane.conversation.tools import TextFormat


class JsonSchemaSpec(Lenient):
    name: str
    schema_: dict[str, object] | None = Field(None, alias="schema")
    strict: bool | None = None


class ResponseFormat(Lenient):
    type: str
    json_schema: JsonSchemaSpec | None = None


def read_format(given: ResponseFormat | None) -> TextFormat | None:
    """The structure the reply's text must have; None for any. Raises `InvalidRequest`."""
    if given is None or given.type == "text":
        return None
    if given.type == "json_object":
        return TextFormat()
    if given.type != "json_schema":
        raise refuse("response_format.type", "must be 'text', 'json_object' or 'json_schema'.")
    spec = given.json_schema
    if spec is None:
        raise refuse("response_format.json_schema", "is required.")
    return schema_format(spec.schema_, "response_format.json_schema.schema", name=spec.name, strict=spec.strict)
