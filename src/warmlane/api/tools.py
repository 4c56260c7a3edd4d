"""What the three dialects share about tools: their names and schemas, the choice among them, structured output."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from warmlane.api.fields import refuse
from warmlane.conversation.canonical import canonical_tools
from warmlane.conversation.tools import TextFormat, Tool, ToolChoice, ToolMode

MAX_TOOLS = 1024
MAX_NESTING = 100
"""Levels of a schema or of a call's arguments; every part behind the edge walks them recursively."""

MAX_NAME_CHARS = 128
_NAME = re.compile(rf"[\w.:/-]{{1,{MAX_NAME_CHARS}}}")


@dataclass(frozen=True, slots=True)
class ToolSet:
    """The functions a request offers, and what was done to their order and spelling."""

    tools: tuple[Tool, ...] = ()
    canonicalized: tuple[str, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        return frozenset(tool.name for tool in self.tools)


def tool_of(
    *,
    name: str,
    description: str | None,
    schema: dict[str, object] | None,
    strict: bool | None,
    path: str,
    schema_field: str = "parameters",
) -> Tool:
    """A function as a client gave it; `path` is where. Whatever its schema says, its arguments are an object. Raises
    `InvalidRequest`."""
    if not _NAME.fullmatch(name):
        raise refuse(f"{path}.name", f"must have 1 to {MAX_NAME_CHARS} letters, digits, or any of _ - . : /.")
    where = f"{path}.{schema_field}"
    if schema is None:
        return Tool(name=name, description=description, strict=bool(strict))
    return Tool(name=name, description=description, parameters=json_text(schema, where), strict=bool(strict))


def tool_set(tools: Sequence[Tool], *, canonicalize: bool, path: str = "tools") -> ToolSet:
    """The functions of a request, with stable order and spelling where that is wanted. Raises `InvalidRequest` for two
    of one name, and for too many."""
    if len(tools) > MAX_TOOLS:
        raise refuse(path, f"may hold at most {MAX_TOOLS} tools.")
    seen: set[str] = set()
    for tool in tools:
        if tool.name in seen:
            raise refuse(path, f"tool names must be unique; {tool.name!r} is there twice.")
        seen.add(tool.name)
    return ToolSet(*canonical_tools(tools)) if canonicalize else ToolSet(tuple(tools))


def tool_choice_of(
    mode: ToolMode,
    tools: ToolSet,
    *,
    allowed: Sequence[str] | None = None,
    parallel: bool = True,
    path: str = "tool_choice",
) -> ToolChoice:
    """How the model may choose; `allowed` are the only names it may call. Raises `InvalidRequest` for a name that is
    not among the tools, and where a call is required and none is possible."""
    for name in allowed or ():
        if name not in tools.names:
            raise refuse(path, f"no function {name[:MAX_NAME_CHARS]!r} is among the tools.")
    if mode is ToolMode.REQUIRED and not (tools.tools if allowed is None else allowed):
        raise refuse(path, "requires a call, and there is no function among the tools that may be called.")
    return ToolChoice(mode=mode, allowed=None if allowed is None else tuple(dict.fromkeys(allowed)), parallel=parallel)


def schema_format(
    schema: dict[str, object] | None, path: str, *, name: str | None = None, strict: bool | None = None
) -> TextFormat:
    """Structured output by a JSON Schema; any object without one. Its keys keep their order: it is the one in which the
    model is to write. Raises `InvalidRequest`."""
    text = None if schema is None else json_text(schema, path)
    return TextFormat(schema=text, name=name, strict=bool(strict))


def json_text(value: object, path: str) -> str:
    """Decoded JSON as text again, keys in their order. Raises `InvalidRequest` where it is nested too deeply."""
    if _deeper_than(value, MAX_NESTING):
        raise refuse(path, f"is nested too deeply; at most {MAX_NESTING} levels are supported.")
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _deeper_than(value: object, levels: int) -> bool:
    level: list[object] = [value]
    for _ in range(levels):
        below: list[object] = []
        for item in level:
            if isinstance(item, dict):
                below += item.values()
            elif isinstance(item, list):
                below += item
        if not below:
            return False
        level = below
    return any(isinstance(item, dict | list) for item in level)
