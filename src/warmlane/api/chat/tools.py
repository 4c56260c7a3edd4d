"""Tools, the choice among them, and structured output, as Chat Completions words them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import BeforeValidator, Field

from warmlane.api.fields import Lenient, refuse
from warmlane.api.tools import ToolSet, schema_format, tool_choice_of, tool_of, tool_set
from warmlane.conversation.tools import TextFormat, Tool, ToolChoice, ToolMode

_MODES = {mode.value: mode for mode in ToolMode}


class FunctionSpec(Lenient):
    name: str
    description: str | None = None
    parameters: dict[str, object] | None = None
    strict: bool | None = None


class ToolSpec(Lenient):
    type: str
    function: FunctionSpec | None = None


class FunctionName(Lenient):
    name: str


class NamedTool(Lenient):
    type: str
    function: FunctionName | None = None


class AllowedTools(Lenient):
    mode: str
    tools: list[NamedTool]


def _word_as_object(value: object) -> object:
    return {"type": value} if isinstance(value, str) else value


class ChoiceSpec(Lenient):
    type: str
    function: FunctionName | None = None
    allowed_tools: AllowedTools | None = None


Choice = Annotated[ChoiceSpec, BeforeValidator(_word_as_object)]
"""A word, or an object; a word becomes an object of that type."""


class JsonSchemaSpec(Lenient):
    name: str
    schema_: dict[str, object] | None = Field(None, alias="schema")
    strict: bool | None = None


class ResponseFormat(Lenient):
    type: str
    json_schema: JsonSchemaSpec | None = None


def read_tools(specs: Sequence[ToolSpec], *, canonicalize: bool, warnings: list[str]) -> ToolSet:
    """The functions among the tools; one of another type is named in `warnings`. Raises `InvalidRequest`."""
    tools: list[Tool] = []
    for index, spec in enumerate(specs):
        if spec.type != "function":
            warnings.append(f"tools[{index}] ({spec.type[:64]})")
            continue
        path = f"tools[{index}].function"
        if spec.function is None:
            raise refuse(path, "is required.")
        given = spec.function
        tools.append(
            tool_of(
                name=given.name,
                description=given.description,
                schema=given.parameters,
                strict=given.strict,
                path=path,
            )
        )
    return tool_set(tools, canonicalize=canonicalize)


def read_choice(choice: ChoiceSpec | None, tools: ToolSet, *, parallel: bool) -> ToolChoice:
    """Raises `InvalidRequest`."""
    if choice is None:
        return tool_choice_of(ToolMode.AUTO, tools, parallel=parallel)
    if choice.type == "function":
        if choice.function is None:
            raise refuse("tool_choice.function", "is required.")
        return tool_choice_of(ToolMode.REQUIRED, tools, allowed=[choice.function.name], parallel=parallel)
    if choice.type == "allowed_tools":
        return _among(choice.allowed_tools, tools, parallel=parallel)
    mode = _MODES.get(choice.type)
    if mode is None:
        raise refuse("tool_choice", "must be 'auto', 'none', 'required', or of type 'function' or 'allowed_tools'.")
    return tool_choice_of(mode, tools, parallel=parallel)


def _among(allowed: AllowedTools | None, tools: ToolSet, *, parallel: bool) -> ToolChoice:
    path = "tool_choice.allowed_tools"
    if allowed is None:
        raise refuse(path, "is required.")
    if allowed.mode not in (ToolMode.AUTO, ToolMode.REQUIRED):
        raise refuse(f"{path}.mode", "must be 'auto' or 'required'.")
    names = [tool.function.name for tool in allowed.tools if tool.function is not None]
    return tool_choice_of(ToolMode(allowed.mode), tools, allowed=names, parallel=parallel, path=f"{path}.tools")


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
