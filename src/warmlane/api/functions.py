"""`tools` and `tool_choice` of Responses and Chat: which functions the model may call, and what of both is repeated.

Only functions are called here. Tools of other types are kept in the echo, skipped, and named among the warnings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal, TypeGuard

from pydantic import Field

from warmlane.api.fields import Lenient, parse, path_of, refuse
from warmlane.api.jsonio import JsonObject
from warmlane.api.tools import MAX_NAME_CHARS, ToolSet, tool_choice_of, tool_of, tool_set
from warmlane.conversation.tools import Tool, ToolChoice, ToolMode

_Path = tuple[int | str, ...]


class ToolBody(Lenient):
    type: str


class FunctionBody(Lenient):
    name: str
    description: str | None = None
    parameters: dict[str, object] | None = None
    strict: bool | None = None


class NamedTool(Lenient):
    name: str


class AllowedTools(Lenient):
    mode: Literal["auto", "required"]
    tools: Annotated[list[dict[str, object]], Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class ToolsRead:
    """`ignored` are the paths of what has no effect."""

    offered: ToolSet = field(default_factory=ToolSet)
    echo: tuple[JsonObject, ...] = ()
    ignored: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ChoiceRead:
    choice: ToolChoice
    echo: str | JsonObject
    ignored: tuple[str, ...] = ()


def read_tools(bodies: Sequence[JsonObject], *, canonicalize: bool) -> ToolsRead:
    """The functions among the tools, flat as in Responses or nested as in Chat. Raises `InvalidRequest`."""
    tools: dict[str, Tool] = {}
    echo: list[JsonObject] = []
    ignored: list[str] = []
    for index, body in enumerate(bodies):
        at: _Path = ("tools", index)
        kind = parse(ToolBody, body, at=at).type
        if kind != "function":
            echo.append(body)
            ignored.append(f"{path_of(at)} ({kind[:64]})")
            continue
        flat, at = _flattened(body, at)
        function = parse(FunctionBody, flat, at=at)
        echo.append({"description": None, "parameters": None, "strict": None, **flat})
        ignored += [path_of((*at, name)) for name in function.unknown if name != "type" and flat[name] is not False]
        if function.name in tools:
            ignored.append(f"{path_of(at)} (named like an earlier one)")
        else:
            tools[function.name] = _tool(function, path_of(at))
    return ToolsRead(tool_set(tuple(tools.values()), canonicalize=canonicalize), tuple(echo), tuple(ignored))


def read_choice(value: object, read: ToolsRead, *, parallel: bool | None) -> ChoiceRead:
    """Which of the tools the model may or must call. Raises `InvalidRequest` for a choice that cannot be held."""
    at_once = parallel is not False
    if value is None or value in ("auto", "none"):
        said = "none" if value == "none" else "auto"
        return ChoiceRead(tool_choice_of(ToolMode(said), read.offered, parallel=at_once), said)
    if value == "required":
        return ChoiceRead(tool_choice_of(ToolMode.REQUIRED, read.offered, parallel=at_once), "required")
    if not _is_object(value):
        raise refuse("tool_choice", "must be 'auto', 'none', 'required', or an object that names functions.")
    kind = parse(ToolBody, value, at=("tool_choice",)).type
    if kind == "function":
        return _named(value, read)
    if kind == "allowed_tools":
        return _allowed(value, read, parallel=at_once)
    raise refuse("tool_choice.type", f"{kind[:64]!r} cannot be called here; only functions can.")


def _named(value: JsonObject, read: ToolsRead) -> ChoiceRead:
    """Exactly one call, of the function that is named."""
    flat, at = _flattened(value, ("tool_choice",))
    name = parse(NamedTool, flat, at=at).name
    path = path_of((*at, "name"))
    choice = tool_choice_of(ToolMode.REQUIRED, read.offered, allowed=[name], parallel=False, path=path)
    return ChoiceRead(choice, {"type": "function", "name": name})


def _allowed(value: JsonObject, read: ToolsRead, *, parallel: bool) -> ChoiceRead:
    at: _Path = ("tool_choice",)
    inner = value.get("allowed_tools")
    if _is_object(inner):
        value, at = {"type": "allowed_tools", **inner}, (*at, "allowed_tools")
    body = parse(AllowedTools, value, at=at)
    names: dict[str, None] = {}
    ignored: list[str] = []
    for index, each in enumerate(body.tools):
        here: _Path = (*at, "tools", index)
        kind = parse(ToolBody, each, at=here).type
        if kind != "function":
            ignored.append(f"{path_of(here)} ({kind[:64]})")
            continue
        flat, here = _flattened(each, here)
        name = parse(NamedTool, flat, at=here).name
        if name not in read.offered.names:
            raise refuse(path_of((*here, "name")), f"no function {name[:MAX_NAME_CHARS]!r} is among the tools.")
        names[name] = None
    choice = tool_choice_of(
        ToolMode(body.mode), read.offered, allowed=tuple(names), parallel=parallel, path=path_of((*at, "tools"))
    )
    return ChoiceRead(choice, {"type": "allowed_tools", "mode": body.mode, "tools": body.tools}, tuple(ignored))


def _flattened(body: JsonObject, at: _Path) -> tuple[JsonObject, _Path]:
    """A function as Responses writes it, also where the client wrote it as Chat does; and the path of its fields."""
    inner = body.get("function")
    if "name" in body or not _is_object(inner):
        return body, at
    outer = {name: value for name, value in body.items() if name != "function"}
    return {**outer, **inner, "type": "function"}, (*at, "function")


def _is_object(value: object) -> TypeGuard[JsonObject]:
    return isinstance(value, dict)


def _tool(function: FunctionBody, path: str) -> Tool:
    return tool_of(
        name=function.name,
        description=function.description,
        schema=function.parameters,
        strict=function.strict,
        path=path,
    )
