"""POST /v1/chat/completions with tools: what is offered, what may be chosen, and calls in the history."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.edge import edge_client
from support.fake_turns import MODEL, FakeTurns
from warmlane.api.settings import EdgeSettings
from warmlane.conversation.messages import Message, Reasoning, Role, Text, ToolCall, ToolResult
from warmlane.conversation.tools import Tool, ToolChoice, ToolMode

PATH = "/v1/chat/completions"
HI = [{"role": "user", "content": "hi"}]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def function(name: str, **fields: object) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **fields}}


WEATHER = function("get_weather", description="weather", parameters=SCHEMA, strict=True)
TIME = function("get_time")
OFFERED = (
    Tool(name="get_time"),
    Tool(name="get_weather", description="weather", parameters=compact(SCHEMA), strict=True),
)


async def turn_of(**fields: Any) -> tuple[FakeTurns, Any]:
    turns = FakeTurns()
    async with edge_client(turns) as client:
        got = await client.post(PATH, json={"model": MODEL, "messages": HI, **fields})
    assert got.status_code == 200, got.text
    return turns, got.headers


async def refused(**fields: Any) -> dict[str, Any]:
    turns = FakeTurns()
    async with edge_client(turns) as client:
        got = await client.post(PATH, json={"model": MODEL, "messages": HI, **fields})
    assert got.status_code == 400, got.text
    assert (turns.open_permits, turns.requests) == (0, [])
    error: dict[str, Any] = got.json()["error"]
    return error


async def test_functions_are_offered_in_a_stable_order() -> None:
    turns, headers = await turn_of(tools=[WEATHER, TIME])
    assert turns.last.tools == OFFERED
    assert headers["x-warmlane-canonicalized"] == "tools: order"
    again, headers = await turn_of(tools=[TIME, WEATHER])
    assert again.last.tools == OFFERED
    assert "x-warmlane-canonicalized" not in headers


async def test_the_order_can_be_left_alone() -> None:
    turns = FakeTurns()
    odd = function("z", parameters={"properties": {"b": {}, "a": {}}, "type": "object"})
    async with edge_client(turns, settings=EdgeSettings(canonicalize=False)) as client:
        got = await client.post(PATH, json={"model": MODEL, "messages": HI, "tools": [odd, TIME]})
    assert "x-warmlane-canonicalized" not in got.headers
    assert [tool.name for tool in turns.last.tools] == ["z", "get_time"]
    assert turns.last.tools[0].parameters == compact(odd["function"]["parameters"])


async def test_tools_of_other_types_are_left_out_and_named() -> None:
    turns, headers = await turn_of(tools=[{"type": "custom", "custom": {"name": "x"}}, TIME, {"type": "web_search"}])
    assert [tool.name for tool in turns.last.tools] == ["get_time"]
    assert headers["x-warmlane-warnings"] == "tools[0] (custom), tools[2] (web_search)"


BOTH = ("get_time", "get_weather")


@pytest.mark.parametrize(
    ("fields", "choice"),
    [
        ({}, ToolChoice()),
        ({"tool_choice": "auto"}, ToolChoice()),
        ({"tool_choice": "none"}, ToolChoice(mode=ToolMode.NONE)),
        ({"tool_choice": "required"}, ToolChoice(mode=ToolMode.REQUIRED)),
        ({"parallel_tool_calls": False}, ToolChoice(parallel=False)),
        ({"parallel_tool_calls": True}, ToolChoice()),
        (
            {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [TIME, WEATHER]}}},
            ToolChoice(allowed=BOTH),
        ),
        (
            {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [TIME]}}},
            ToolChoice(mode=ToolMode.REQUIRED, allowed=("get_time",)),
        ),
    ],
)
async def test_the_choice_among_tools(fields: dict[str, Any], choice: ToolChoice) -> None:
    turns, _ = await turn_of(tools=[TIME, WEATHER], **fields)
    assert turns.last.tool_choice == choice


async def test_a_named_function_must_be_called() -> None:
    turns, _ = await turn_of(tools=[TIME, WEATHER], tool_choice=function("get_time"))
    assert (turns.last.tool_choice.mode, turns.last.tool_choice.allowed) == (ToolMode.REQUIRED, ("get_time",))


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": {}}, "tools"),
        ({"tools": [5]}, "tools[0]"),
        ({"tools": [{}]}, "tools[0].type"),
        ({"tools": [TIME, function("")]}, "tools[1].function.name"),
        ({"tools": [function("a b")]}, "tools[0].function.name"),
        ({"tools": [function("a" * 300)]}, "tools[0].function.name"),
        ({"tools": [function("a", parameters=[])]}, "tools[0].function.parameters"),
        ({"tools": [function("a", parameters=deep(60))]}, "tools[0].function.parameters"),
        ({"tools": [function("a", strict="yes")]}, "tools[0].function.strict"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": "maybe", "tools": [TIME]}, "tool_choice"),
        ({"tool_choice": 5, "tools": [TIME]}, "tool_choice"),
        ({"tools": [TIME], "parallel_tool_calls": "no"}, "parallel_tool_calls"),
    ],
)
async def test_what_cannot_be_offered_is_named(fields: dict[str, Any], param: str) -> None:
    assert (await refused(**fields))["param"] == param


@pytest.mark.parametrize(
    "choice",
    [
        function("other"),
        {"type": "function"},
        {"type": "custom", "custom": {"name": "x"}},
        {"type": "allowed_tools"},
        {"type": "allowed_tools", "allowed_tools": {"mode": "none", "tools": [TIME]}},
        {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [function("other")]}},
        {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": []}},
    ],
)
async def test_a_choice_that_cannot_be_held_is_refused(choice: object) -> None:
    assert (await refused(tools=[TIME], tool_choice=choice))["param"].startswith("tool_choice")


def call(call_id: str, name: str, arguments: object) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


async def test_calls_and_results_in_the_history() -> None:
    turns, headers = await turn_of(
        messages=[
            *HI,
            {"role": "assistant", "content": None, "tool_calls": [call("c1", "f", "{}"), call("c2", "g", '{"a": 1}')]},
            {"role": "tool", "tool_call_id": "c1", "name": "f", "content": "one"},
            {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": s} for s in ("two", "!")]},
            {"role": "assistant", "content": "", "reasoning": "hm", "tool_calls": [call("c3", "f", {"ü": [1]})]},
            {"role": "tool", "tool_call_id": "c3", "content": ""},
            {"role": "assistant", "content": "well", "reasoning_content": "so", "reasoning": "other"},
            *HI,
        ]
    )
    assert turns.last.input[1:-1] == (
        Message(Role.ASSISTANT, (ToolCall("c1", "f", "{}"), ToolCall("c2", "g", '{"a": 1}'))),
        Message(Role.TOOL, (ToolResult("c1", "one"),)),
        Message(Role.TOOL, (ToolResult("c2", "two!"),)),
        Message(Role.ASSISTANT, (Reasoning("hm"), ToolCall("c3", "f", '{"ü": [1]}'))),
        Message(Role.TOOL, (ToolResult("c3", ""),)),
        Message(Role.ASSISTANT, (Reasoning("so"), Text("well"))),
    )
    assert "x-warmlane-warnings" not in headers


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"role": "tool", "content": "x"}, "tool_call_id"),
        ({"role": "tool", "content": "x", "tool_call_id": ""}, "tool_call_id"),
        ({"role": "tool", "tool_call_id": "c"}, "content"),
        ({"role": "tool", "tool_call_id": "c", "content": [{"type": "image_url"}]}, "content[0].type"),
        ({"role": "user", "content": "x", "tool_calls": [call("c", "f", "")]}, "tool_calls"),
        ({"role": "assistant", "tool_calls": [{"type": "function"}]}, "tool_calls[0].id"),
        ({"role": "assistant", "tool_calls": [{"id": "c"}]}, "tool_calls[0].function"),
        ({"role": "assistant", "tool_calls": [{"id": "c", "type": "custom"}]}, "tool_calls[0].type"),
        ({"role": "assistant", "tool_calls": [call("c", "f", 5)]}, "tool_calls[0].function.arguments"),
        ({"role": "assistant", "tool_calls": [call("c", "", "{}")]}, "tool_calls[0].function.name"),
        ({"role": "assistant", "tool_calls": "c"}, "tool_calls"),
    ],
)
async def test_a_call_or_result_that_is_wrong_is_named(message: dict[str, Any], param: str) -> None:
    assert (await refused(messages=[*HI, message]))["param"] == f"messages[1].{param}"
