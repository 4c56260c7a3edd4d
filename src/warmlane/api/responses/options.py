"""`text`, `reasoning` and `include`: the form of the reply, whether to think first, and what else to tell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from warmlane.api.fields import Lenient, parse
from warmlane.api.jsonio import JsonObject
from warmlane.api.reasoning import Effort, thinking_of
from warmlane.api.responses.wire import (
    JsonObjectFormat,
    JsonSchemaFormat,
    ReasoningConfig,
    TextConfig,
)
from warmlane.api.tools import schema_format
from warmlane.conversation.tools import TextFormat, Thinking

INCLUDE_LOGPROBS = "message.output_text.logprobs"
INCLUDE_ENCRYPTED = "reasoning.encrypted_content"
INCLUDED = frozenset({INCLUDE_LOGPROBS, INCLUDE_ENCRYPTED})

Summary = Literal["auto", "concise", "detailed"]


class FormatBody(Lenient):
    type: Literal["text", "json_object", "json_schema"]


class SchemaBody(Lenient):
    """`strict` changes nothing: a reply always keeps to its schema."""

    name: Annotated[str, Field(min_length=1, max_length=128)] = "response"
    description: str | None = None
    schema_: dict[str, object] = Field(alias="schema")
    strict: bool | None = None


class TextOptions(Lenient):
    format: dict[str, object] | None = None
    verbosity: object = None


class ReasoningOptions(Lenient):
    effort: Effort | None = None
    summary: Summary | None = None
    generate_summary: Summary | None = None


@dataclass(frozen=True, slots=True)
class FormatRead:
    """`ignored` are the paths of what has no effect."""

    format: TextFormat | None
    echo: TextConfig
    ignored: tuple[str, ...] = ()


def read_format(options: TextOptions | None) -> FormatRead:
    """Raises `InvalidRequest`."""
    body = options.format if options else None
    if body is None:
        return FormatRead(None, TextConfig())
    asked = parse(FormatBody, body, at=("text", "format"))
    ignored = tuple(f"text.format.{name}" for name in asked.unknown)
    match asked.type:
        case "text":
            return FormatRead(None, TextConfig(), ignored)
        case "json_object":
            return FormatRead(TextFormat(), TextConfig(JsonObjectFormat()), ignored)
        case "json_schema":
            return _schema(body)


def _schema(body: JsonObject) -> FormatRead:
    """A schema as Responses writes it, or nested as in Chat."""
    inner = body.get("json_schema")
    path = "text.format"
    if isinstance(inner, dict):
        path = "text.format.json_schema"
        schema = parse(SchemaBody, inner, at=("text", "format", "json_schema"))
    else:
        schema = parse(SchemaBody, body, at=("text", "format"))
    strict = schema.strict is True
    echo = JsonSchemaFormat(name=schema.name, description=schema.description, schema=schema.schema_, strict=strict)
    return FormatRead(
        schema_format(schema.schema_, f"{path}.schema", name=schema.name, strict=strict),
        TextConfig(echo),
        tuple(f"{path}.{name}" for name in schema.unknown if name != "type"),
    )


def read_thinking(options: ReasoningOptions | None) -> tuple[Thinking, ReasoningConfig]:
    """No effort leaves it to the model's template whether to think; `none` asks not to."""
    if options is None:
        return Thinking(), ReasoningConfig()
    echo = ReasoningConfig(options.effort, options.summary or options.generate_summary)
    return thinking_of(options.effort), echo
