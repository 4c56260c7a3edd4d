"""Tools, the choice among them, and structured output, as Messages words them."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from warmlane.api.fields import Lenient, refuse
from warmlane.api.messages.blocks import CacheControl
from warmlane.api.tools import ToolSet, schema_format, tool_choice_of, tool_of, tool_set
from warmlane.conversation.tools import TextFormat, Tool, ToolChoice, ToolMode

_MODES = {"auto": ToolMode.AUTO, "any": ToolMode.REQUIRED, "none": ToolMode.NONE}


class ToolSpec(Lenient):
    """A client's tool, or one of the vendor's, which has a `type` of its own."""

    type: str | None = None
    name: str | None = None
    description: str | None = None
    input_schema: dict[str, object] | None = None
    strict: bool | None = None
    defer_loading: bool | None = None
    input_examples: list[object] | None = None
    allowed_callers: list[str] | None = None
    cache_control: CacheControl | None = None


class ChoiceSpec(Lenient):
    type: str
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class OutputFormat(Lenient):
    type: str
    schema_: dict[str, object] | None = Field(None, alias="schema")


def read_tools(specs: Sequence[ToolSpec], *, canonicalize: bool, warnings: list[str]) -> ToolSet:
    """The client's tools; those that the vendor's servers run are named in `warnings`. Raises `InvalidRequest`."""
    tools: list[Tool] = []
    for index, spec in enumerate(specs):
        path = f"tools[{index}]"
        if spec.type == "function":
            raise refuse(f"{path}.type", "is of another API; a tool here has 'name' and 'input_schema'.")
        if spec.type not in (None, "custom"):
            warnings.append(f"{path} ({spec.type[:64]})")
            continue
        tools.append(_tool(spec, path))
        warnings += (f"{path}.{name}" for name in _without_effect(spec))
    return tool_set(tools, canonicalize=canonicalize)


def _tool(spec: ToolSpec, path: str) -> Tool:
    if spec.name is None:
        raise refuse(f"{path}.name", "is required.")
    if spec.input_schema is None:
        raise refuse(f"{path}.input_schema", "is required.")
    return tool_of(
        name=spec.name,
        description=spec.description,
        schema=spec.input_schema,
        strict=spec.strict,
        path=path,
        schema_field="input_schema",
    )


def _without_effect(spec: ToolSpec) -> list[str]:
    """The fields of a tool that is shown to the model, and may be called by it, like any other."""
    fields = []
    if spec.defer_loading:
        fields.append("defer_loading")
    if spec.input_examples:
        fields.append("input_examples")
    if spec.allowed_callers and "direct" not in spec.allowed_callers:
        fields.append("allowed_callers")
    return fields


def read_choice(choice: ChoiceSpec | None, tools: ToolSet) -> ToolChoice:
    """Raises `InvalidRequest`."""
    if choice is None:
        return ToolChoice()
    parallel = not choice.disable_parallel_tool_use
    if choice.type == "tool":
        if choice.name is None:
            raise refuse("tool_choice.name", "is required.")
        return tool_choice_of(ToolMode.REQUIRED, tools, allowed=[choice.name], parallel=parallel)
    mode = _MODES.get(choice.type)
    if mode is None:
        raise refuse("tool_choice.type", "must be 'auto', 'any', 'tool' or 'none'.")
    return tool_choice_of(mode, tools, parallel=parallel)


def read_format(given: OutputFormat | None, path: str) -> TextFormat | None:
    """The structure the reply's text must have; None for any. Raises `InvalidRequest`."""
    if given is None:
        return None
    if given.type != "json_schema":
        raise refuse(f"{path}.type", "must be 'json_schema'.")
    if given.schema_ is None:
        raise refuse(f"{path}.schema", "is required.")
    return schema_format(given.schema_, f"{path}.schema", strict=True)
