"""`tools` and `tool_choice`: which functions the model may call, and what of both the response repeats.

Only functions are called here. Tools of other types are kept in the echo, skipped, and named among the warnings.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, TypeGuard

from pydantic import Field

from warmlane.api.fields import Lenient, parse, path_of, refuse
from warmlane.api.jsonio import JsonObject
from warmlane.conversation.tools import Tool, ToolChoice, ToolMode

MAX_TOOL_NAME_CHARS = 128

ToolName = Annotated[str, Field(pattern=rf"^[\w.:/-]{{1,{MAX_TOOL_NAME_CHARS}}}$")]

_Path = tuple[int | str, ...]


class ToolBody(Lenient):
    type: str


class FunctionBody(Lenient):
    name: ToolName
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

    tools: tuple[Tool, ...] = ()
    echo: tuple[JsonObject, ...] = ()
    ignored: tuple[str, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        return frozenset(tool.name for tool in self.tools)


@dataclass(frozen=True, slots=True)
class ChoiceRead:
    choice: ToolChoice
    echo: str | JsonObject
    ignored: tuple[str, ...] = ()


def read_tools(bodies: Sequence[JsonObject]) -> ToolsRead:
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
            tools[function.name] = _tool(function)
    return ToolsRead(tuple(tools.values()), tuple(echo), tuple(ignored))


def read_choice(value: object, read: ToolsRead, *, parallel: bool | None) -> ChoiceRead:
    """Which of the tools the model may or must call. Raises `InvalidRequest` for a choice that cannot be held."""
    at_once = parallel is not False
    if value is None or value in ("auto", "none"):
        said = "none" if value == "none" else "auto"
        return ChoiceRead(ToolChoice(mode=ToolMode(said), parallel=at_once), said)
    if value == "required":
        if not read.tools:
            raise refuse("tool_choice", "'required' needs a function among the tools.")
        return ChoiceRead(ToolChoice(mode=ToolMode.REQUIRED, parallel=at_once), "required")
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
    if name not in read.names:
        raise refuse(path_of((*at, "name")), f"no function {name[:MAX_TOOL_NAME_CHARS]!r} is among the tools.")
    echo: JsonObject = {"type": "function", "name": name}
    return ChoiceRead(ToolChoice(mode=ToolMode.REQUIRED, allowed=(name,), parallel=False), echo)


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
        if name not in read.names:
            raise refuse(path_of((*here, "name")), f"no function {name[:MAX_TOOL_NAME_CHARS]!r} is among the tools.")
        names[name] = None
    if not names and body.mode == "required":
        raise refuse(path_of((*at, "tools")), "must name a function, as a call is required.")
    choice = ToolChoice(mode=ToolMode(body.mode), allowed=tuple(names), parallel=parallel)
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


def _tool(function: FunctionBody) -> Tool:
    strict = function.strict is True
    if function.parameters is None:
        return Tool(name=function.name, description=function.description, strict=strict)
    return Tool(
        name=function.name,
        description=function.description,
        parameters=json_text(function.parameters),
        strict=strict,
    )


def json_text(value: object) -> str:
    """Compact JSON, keys in the order they came in."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
