"""Responses with tools: which are offered, which may be called, and calls and results on their way back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai.types.responses import Response

from support.edge import check_responses, edge_client, sse_events
from support.fake_turns import MODEL, FakeTurns, outcome, rich_turn
from warmlane.conversation.events import Finished, ToolCallDelta, ToolCallStarted, Validated
from warmlane.conversation.messages import Message, Reasoning, Role, Text, ToolCall, ToolResult
from warmlane.conversation.tools import Tool, ToolChoice, ToolMode
from warmlane.conversation.turn import StopReason

PATH = "/v1/responses"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}, "any": {}}, "required": ["city"]}
WEATHER = {"type": "function", "name": "get_weather", "description": "tells it", "parameters": SCHEMA, "strict": True}
TIME = {"type": "function", "name": "get_time"}
FOREIGN = [
    {"type": "web_search"},
    {"type": "custom", "name": "apply_patch", "format": {"type": "grammar", "syntax": "lark"}},
    {"type": "namespace", "name": "mcp__x", "tools": [{"type": "function", "name": "inner"}]},
    {"type": "local_shell"},
    {"type": "mcp", "server_label": "x", "server_url": "http://localhost"},
    {"type": "tool_search"},
]


async def answered(turns: FakeTurns, **fields: Any) -> tuple[dict[str, Any], list[str]]:
    async with edge_client(turns) as client:
        got = await client.post(PATH, json={"model": MODEL, "input": "hi", **fields})
    assert got.status_code == 200, got.text
    warnings = got.headers.get("x-warmlane-warnings", "")
    return got.json(), warnings.split(", ") if warnings else []


async def refused(**fields: Any) -> str:
    turns = FakeTurns()
    async with edge_client(turns) as client:
        got = await client.post(PATH, json={"model": MODEL, "input": "hi", **fields})
    assert got.status_code == 400, got.text
    assert (turns.open_permits, turns.requests) == (0, [])
    error = got.json()["error"]
    assert error["param"] in error["message"]
    return str(error["param"])


async def test_functions_are_offered_and_echoed_with_every_key() -> None:
    turns = FakeTurns()
    body, warnings = await answered(turns, tools=[WEATHER, TIME])
    assert turns.last.tools == (
        Tool(name="get_time"),
        Tool(
            name="get_weather",
            description="tells it",
            parameters=json.dumps(SCHEMA, separators=(",", ":")),
            strict=True,
        ),
    )
    assert body["tools"] == [WEATHER, {**TIME, "description": None, "parameters": None, "strict": None}]
    assert warnings == []
    Response.model_validate(body)


async def test_keys_are_put_in_order_and_that_is_told() -> None:
    turns = FakeTurns()
    tool = {**TIME, "parameters": {"z": 1, "a": {"y": "é", "b": 12345678901234567890123}}}
    async with edge_client(turns) as client:
        got = await client.post(PATH, json={"model": MODEL, "input": "hi", "tools": [tool]})
    assert turns.last.tools[0].parameters == '{"a":{"b":12345678901234567890123,"y":"é"},"z":1}'
    assert got.json()["tools"][0]["parameters"] == tool["parameters"]
    assert got.headers["x-warmlane-canonicalized"] == "tools.get_time: key order"


async def test_a_function_written_as_in_chat_is_taken() -> None:
    turns = FakeTurns()
    nested = {name: value for name, value in WEATHER.items() if name != "type"}
    body, _ = await answered(turns, tools=[{"type": "function", "function": nested}])
    assert turns.last.tools[0].name == "get_weather"
    assert body["tools"] == [WEATHER]


async def test_other_tools_are_kept_in_the_echo_skipped_and_named() -> None:
    turns = FakeTurns()
    body, warnings = await answered(turns, tools=[*FOREIGN, TIME])
    assert [tool.name for tool in turns.last.tools] == ["get_time"]
    assert body["tools"][:-1] == FOREIGN
    assert warnings == [f"tools[{n}] ({tool['type']})" for n, tool in enumerate(FOREIGN)]


@pytest.mark.parametrize("kind", [None, ["object", "null"], "array", "strin", {"a": 1}])
async def test_what_a_schema_says_it_is_of_refuses_no_request(kind: object) -> None:
    turns = FakeTurns()
    await answered(turns, tools=[{**TIME, "parameters": {"type": kind, "properties": {}}}])
    assert json.loads(turns.last.tools[0].parameters)["type"] == kind


async def test_of_two_functions_of_one_name_the_first_counts() -> None:
    turns = FakeTurns()
    _, warnings = await answered(turns, tools=[TIME, {**WEATHER, "name": "get_time"}, {**TIME, "defer_loading": True}])
    assert turns.last.tools == (Tool(name="get_time"),)
    assert "tools[1] (named like an earlier one)" in warnings
    assert "tools[2].defer_loading" in warnings


@pytest.mark.parametrize(
    ("asked", "choice", "echo"),
    [
        (None, ToolChoice(), "auto"),
        ("auto", ToolChoice(), "auto"),
        ("none", ToolChoice(mode=ToolMode.NONE), "none"),
        ("required", ToolChoice(mode=ToolMode.REQUIRED), "required"),
        (
            {"type": "function", "name": "get_time"},
            ToolChoice(mode=ToolMode.REQUIRED, allowed=("get_time",), parallel=False),
            {"type": "function", "name": "get_time"},
        ),
        (
            {"type": "function", "function": {"name": "get_time"}},
            ToolChoice(mode=ToolMode.REQUIRED, allowed=("get_time",), parallel=False),
            {"type": "function", "name": "get_time"},
        ),
        (
            {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "get_time"}]},
            ToolChoice(mode=ToolMode.REQUIRED, allowed=("get_time",)),
            {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "get_time"}]},
        ),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"type": "web_search"}]}},
            ToolChoice(allowed=()),
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "web_search"}]},
        ),
    ],
)
async def test_which_tools_may_be_called(asked: object, choice: ToolChoice, echo: object) -> None:
    turns = FakeTurns()
    body, _ = await answered(turns, tools=[WEATHER, TIME], tool_choice=asked)
    assert turns.last.tool_choice == choice
    assert [tool.name for tool in turns.last.tools] == ["get_time", "get_weather"]
    assert body["tool_choice"] == echo
    Response.model_validate(body)


async def test_one_call_at_a_time() -> None:
    turns = FakeTurns()
    body, _ = await answered(turns, tools=[TIME], parallel_tool_calls=False, tool_choice="required")
    assert turns.last.tool_choice == ToolChoice(mode=ToolMode.REQUIRED, parallel=False)
    assert body["parallel_tool_calls"] is False


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": {"type": "function"}}, "tools"),
        ({"tools": ["f"]}, "tools[0]"),
        ({"tools": [{"name": "f", "input_schema": {}}]}, "tools[0].type"),
        ({"tools": [TIME, {"type": "function"}]}, "tools[1].name"),
        ({"tools": [{"type": "function", "name": ""}]}, "tools[0].name"),
        ({"tools": [{"type": "function", "name": "two words"}]}, "tools[0].name"),
        ({"tools": [{"type": "function", "name": "x" * 129}]}, "tools[0].name"),
        ({"tools": [{"type": "function", "function": {"name": 5}}]}, "tools[0].function.name"),
        ({"tools": [{**TIME, "parameters": "{}"}]}, "tools[0].parameters"),
        ({"tools": [{**TIME, "strict": "yes"}]}, "tools[0].strict"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": "required", "tools": [{"type": "web_search"}]}, "tool_choice"),
        ({"tool_choice": "any"}, "tool_choice"),
        ({"tool_choice": 5}, "tool_choice"),
        ({"tool_choice": {"type": "function", "name": "f"}}, "tool_choice.name"),
        ({"tool_choice": {"type": "function"}}, "tool_choice.name"),
        ({"tool_choice": {"name": "f"}}, "tool_choice.type"),
        ({"tool_choice": {"type": "web_search_preview"}}, "tool_choice.type"),
        ({"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": []}}, "tool_choice.tools"),
        ({"tool_choice": {"type": "allowed_tools", "tools": [TIME]}}, "tool_choice.mode"),
        (
            {"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [TIME]}},
            "tool_choice.tools[0].name",
        ),
        (
            {"tool_choice": {"type": "allowed_tools", "mode": "required", "tools": [{"type": "mcp"}]}},
            "tool_choice.tools",
        ),
    ],
)
async def test_what_cannot_be_offered_or_held_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    assert await refused(**fields) == param


CALL_A = {"type": "function_call", "call_id": "call_a", "name": "get_weather", "arguments": '{"city":"Bern"}'}
CALL_B = {"type": "function_call", "call_id": "call_b", "name": "get_time", "arguments": "{}", "namespace": None}
RESULT_A = {"type": "function_call_output", "call_id": "call_a", "output": "rain"}
USER = {"role": "user", "content": "hi"}


@pytest.mark.parametrize(
    ("items", "messages"),
    [
        (
            [USER, CALL_A, {**CALL_B, "id": "fc_1", "status": "completed"}, RESULT_A],
            [
                Message(Role.USER, (Text("hi"),)),
                Message(
                    Role.ASSISTANT,
                    (ToolCall("call_a", "get_weather", '{"city":"Bern"}'), ToolCall("call_b", "get_time", "{}")),
                ),
                Message(Role.TOOL, (ToolResult("call_a", "rain"),)),
            ],
        ),
        (
            [
                {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
                {"role": "assistant", "content": "I look."},
                CALL_A,
                RESULT_A,
                {"role": "assistant", "content": "It rains."},
                {"type": "reasoning", "summary": [{"type": "summary_text", "text": "more"}]},
                CALL_B,
            ],
            [
                Message(
                    Role.ASSISTANT,
                    (Reasoning("hm"), Text("I look."), ToolCall("call_a", "get_weather", '{"city":"Bern"}')),
                ),
                Message(Role.TOOL, (ToolResult("call_a", "rain"),)),
                Message(Role.ASSISTANT, (Text("It rains."),)),
                Message(Role.ASSISTANT, (Reasoning("more"), ToolCall("call_b", "get_time", "{}"))),
            ],
        ),
        (
            [
                {
                    **RESULT_A,
                    "output": [{"type": "input_text", "text": "a"}, {"type": "output_text", "text": "b"}],
                }
            ],
            [Message(Role.TOOL, (ToolResult("call_a", "a\nb"),))],
        ),
        (
            [
                {"type": "custom_tool_call", "call_id": "c", "name": "apply_patch", "input": "*** é"},
                {"type": "custom_tool_call_output", "call_id": "c", "output": "done"},
            ],
            [
                Message(Role.ASSISTANT, (ToolCall("c", "apply_patch", '{"input": "*** é"}'),)),
                Message(Role.TOOL, (ToolResult("c", "done"),)),
            ],
        ),
    ],
)
async def test_calls_and_results_in_the_input(items: list[dict[str, Any]], messages: list[Message]) -> None:
    turns = FakeTurns()
    _, warnings = await answered(turns, input=items)
    assert list(turns.last.input) == messages
    assert warnings == []


async def test_items_that_say_nothing_here_are_skipped_and_named() -> None:
    turns = FakeTurns()
    shell = {"type": "local_shell_call", "call_id": "c", "action": {"command": ["ls"]}, "name": 5}
    image = {**RESULT_A, "output": [{"type": "input_image", "image_url": "data:image/png;base64,AA=="}]}
    _, warnings = await answered(turns, input=[shell, {"type": "web_search_call"}, USER, CALL_A, image])
    assert turns.last.input[0] == Message(Role.USER, (Text("hi"),))
    assert turns.last.input[-1] == Message(Role.TOOL, (ToolResult("call_a", "[input_image not shown]"),))
    assert warnings == ["input[0] (local_shell_call)", "input[1] (web_search_call)", "input[4].output[0] (input_image)"]


@pytest.mark.parametrize(
    ("item", "param"),
    [
        ({**CALL_A, "call_id": None}, "input[0].call_id"),
        ({**CALL_A, "call_id": ""}, "input[0].call_id"),
        ({**CALL_A, "arguments": {}}, "input[0].arguments"),
        ({**CALL_A, "name": ""}, "input[0].name"),
        ({"type": "function_call_output", "call_id": "c"}, "input[0].output"),
        ({**RESULT_A, "output": 5}, "input[0].output"),
        ({**RESULT_A, "output": [{"type": "input_text"}]}, "input[0].output[0].text"),
        ({"type": "custom_tool_call", "call_id": "c", "name": "x"}, "input[0].input"),
    ],
)
async def test_a_broken_call_or_result_is_refused_by_name(item: dict[str, Any], param: str) -> None:
    assert await refused(input=[item, USER]) == param


async def test_our_own_calls_may_be_fed_back_as_they_are() -> None:
    turns = FakeTurns(rich_turn())
    first, _ = await answered(turns, include=["reasoning.encrypted_content"])
    end = turns.script[-1]
    assert isinstance(end, Finished)
    stripped = [{name: value for name, value in item.items() if name != "id"} for item in first["output"]]
    for items in (first["output"], stripped):
        await answered(turns, input=[USER, *items, RESULT_A, {**RESULT_A, "call_id": "call_b"}])
        assert turns.last.input[1].parts == end.outcome.message.parts


async def test_calls_in_a_stream() -> None:
    async with edge_client(FakeTurns(rich_turn())) as client:
        got = await client.post(PATH, json={"model": MODEL, "input": "hi", "stream": True, "tools": [WEATHER, TIME]})
    events = sse_events(got.content, named=True)
    check_responses(events)
    calls = [event for event in events if "function_call_arguments" in event["type"]]
    assert [event["type"].rsplit(".", 1)[1] for event in calls] == ["delta", "delta", "done", "delta", "done"]
    assert [event["arguments"] for event in calls if "arguments" in event] == ['{"city":"Bern"}', "{}"]
    added = [event["item"] for event in events if event["type"] == "response.output_item.added"]
    assert [(item["call_id"], item["arguments"]) for item in added[2:]] == [("call_a", ""), ("call_b", "")]
    assert (
        events[0]["response"]["tools"]
        == events[-1]["response"]["tools"]
        == [WEATHER, {**TIME, "description": None, "parameters": None, "strict": None}]
    )


async def test_a_call_that_was_cut_is_incomplete() -> None:
    parts = (ToolCall("call_a", "f", '{"a"'),)
    script = [
        Validated(),
        ToolCallStarted(0, "call_a", "f"),
        ToolCallDelta(0, '{"a"'),
        Finished(outcome(*parts, stop_reason=StopReason.LENGTH)),
    ]
    whole, _ = await answered(FakeTurns(script))
    assert (whole["status"], whole["output"][0]["status"]) == ("incomplete", "incomplete")
    async with edge_client(FakeTurns(script)) as client:
        got = await client.post(PATH, json={"model": MODEL, "input": "hi", "stream": True})
    events = sse_events(got.content, named=True)
    assert events[-1]["type"] == "response.incomplete"
    assert events[-1]["response"]["output"] == [{**whole["output"][0], "id": events[-1]["response"]["output"][0]["id"]}]
