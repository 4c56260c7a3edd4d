"""POST /v1/messages with tools: what is offered, what may be chosen, and every block a client replays."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.edge import edge_client
from support.fake_turns import MODEL, FakeTurns, rich_turn
from warmlane.conversation.messages import Message, Part, Reasoning, Role, Text, ToolCall, ToolResult
from warmlane.conversation.tools import Tool, ToolChoice, ToolMode

PATH = "/v1/messages"
COUNT = "/v1/messages/count_tokens"
HI = [{"role": "user", "content": "hi"}]
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = {"name": "get_weather", "description": "weather", "input_schema": SCHEMA}
TIME = {"type": "custom", "name": "get_time", "input_schema": {"type": "object"}}
TEXT = {"type": "text", "text": "t"}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
PDF = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}}


async def turn_of(**fields: Any) -> tuple[FakeTurns, Any]:
    turns = FakeTurns()
    async with edge_client(turns) as client:
        got = await client.post(PATH, json={"model": MODEL, "max_tokens": 8, "messages": HI, **fields})
        counted = await client.post(COUNT, json={"model": MODEL, "messages": HI, **fields})
    assert (got.status_code, counted.status_code) == (200, 200), got.text
    for name in ("input", "tools", "tool_choice", "thinking", "text_format"):
        assert getattr(turns.counted[-1], name) == getattr(turns.last, name)
    return turns, got.headers


async def refused(**fields: Any) -> str:
    turns = FakeTurns()
    async with edge_client(turns) as client:
        got = await client.post(PATH, json={"model": MODEL, "max_tokens": 8, "messages": HI, **fields})
        counted = await client.post(COUNT, json={"model": MODEL, "messages": HI, **fields})
    assert (got.status_code, counted.status_code) == (400, 400), got.text
    assert got.json()["error"] == counted.json()["error"]
    assert (turns.open_permits, turns.requests, turns.counted) == (0, [], [])
    return str(got.json()["error"]["message"])


async def test_tools_are_offered_in_a_stable_order() -> None:
    turns, headers = await turn_of(tools=[WEATHER, TIME])
    assert turns.last.tools == (
        Tool(name="get_time", parameters='{"type":"object"}'),
        Tool(name="get_weather", description="weather", parameters=json.dumps(SCHEMA, separators=(",", ":"))),
    )
    assert headers["x-warmlane-canonicalized"] == "tools: order"


async def test_the_vendors_own_tools_are_left_out_and_named() -> None:
    own = [{"type": "web_search_20260209", "name": "web_search"}, {"type": "bash_20250124", "name": "bash"}]
    turns, headers = await turn_of(tools=[own[0], TIME, own[1]])
    assert [tool.name for tool in turns.last.tools] == ["get_time"]
    assert headers["x-warmlane-warnings"] == "tools[0] (web_search_20260209), tools[2] (bash_20250124)"


async def test_what_has_no_effect_on_a_tool_is_named() -> None:
    odd = {**TIME, "defer_loading": True, "input_examples": [{}], "allowed_callers": ["code_execution_20250825"]}
    plain = {**WEATHER, "defer_loading": False, "allowed_callers": ["direct"], "eager_input_streaming": True}
    _, headers = await turn_of(tools=[odd, plain])
    assert headers["x-warmlane-warnings"] == (
        "tools[0].defer_loading, tools[0].input_examples, tools[0].allowed_callers"
    )


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, ToolChoice()),
        ({"type": "auto"}, ToolChoice()),
        ({"type": "none"}, ToolChoice(mode=ToolMode.NONE)),
        ({"type": "any"}, ToolChoice(mode=ToolMode.REQUIRED)),
        ({"type": "auto", "disable_parallel_tool_use": True}, ToolChoice(parallel=False)),
        (
            {"type": "any", "disable_parallel_tool_use": True},
            ToolChoice(mode=ToolMode.REQUIRED, parallel=False),
        ),
        (
            {"type": "tool", "name": "get_time", "disable_parallel_tool_use": False},
            ToolChoice(mode=ToolMode.REQUIRED, allowed=("get_time",)),
        ),
    ],
)
async def test_the_choice_among_tools(choice: object, expected: ToolChoice) -> None:
    turns, _ = await turn_of(tools=[TIME, WEATHER], tool_choice=choice)
    assert turns.last.tool_choice == expected


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"tools": {}}, "tools"),
        ({"tools": [5]}, "tools[0]"),
        ({"tools": [{"input_schema": {}}]}, "tools[0].name"),
        ({"tools": [{"name": "f"}]}, "tools[0].input_schema"),
        ({"tools": [{"name": "f", "input_schema": []}]}, "tools[0].input_schema"),
        ({"tools": [{"name": "f g", "input_schema": {}}]}, "tools[0].name"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools[0].type"),
        ({"tools": [TIME, TIME]}, "tools"),
        ({"tools": [{**TIME, "cache_control": {"type": "x"}}]}, "tools[0].cache_control.type"),
        ({"tools": [TIME], "tool_choice": {"type": "tool"}}, "tool_choice.name"),
        ({"tools": [TIME], "tool_choice": {"type": "tool", "name": "f"}}, "tool_choice"),
        ({"tools": [TIME], "tool_choice": {"type": "required"}}, "tool_choice.type"),
        ({"tools": [TIME], "tool_choice": "auto"}, "tool_choice"),
        ({"tools": [{"type": "web_search_1", "name": "w"}], "tool_choice": {"type": "any"}}, "tool_choice"),
    ],
)
async def test_what_cannot_be_offered_is_named(fields: dict[str, Any], path: str) -> None:
    assert f"'{path}'" in await refused(**fields)


USED = [
    {"type": "text", "text": "I'll look."},
    {"type": "tool_use", "id": "t1", "name": "get_weather", "input": {"city": "Zürich"}},
    {"type": "tool_use", "id": "t2", "name": "get_time", "input": {}, "caller": {"type": "direct"}},
]
CALLS = (Text("I'll look."), ToolCall("t1", "get_weather", '{"city":"Zürich"}'), ToolCall("t2", "get_time", "{}"))


def result(call_id: str, **fields: object) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, **fields}


def answered(call_id: str, text: str, *, is_error: bool = False) -> Message:
    return Message(Role.TOOL, (ToolResult(call_id, text, is_error),))


def user(*parts: Part) -> Message:
    return Message(Role.USER, parts)


SOURCE = {"type": "text", "media_type": "text/plain", "data": "body"}
FOUND = {"type": "search_result", "source": "http://a", "title": "A", "content": [TEXT, TEXT]}
PARTS = {"type": "content", "content": [TEXT, TEXT]}
LEFT_OUT = "[An image was left out: this model reads text only.]"


@pytest.mark.parametrize(
    ("content", "messages"),
    [
        ([result("t1", content="sun"), result("t2", content="noon")], [answered("t1", "sun"), answered("t2", "noon")]),
        ([result("t1"), result("t2", content=None)], [answered("t1", ""), answered("t2", "")]),
        ([result("t1", content=[]), result("t2", content="")], [answered("t1", ""), answered("t2", "")]),
        ([result("t1", content="no", is_error=True)], [answered("t1", "no", is_error=True)]),
        ([result("t1", content=[TEXT, {"type": "text", "text": ""}, TEXT])], [answered("t1", "t\nt")]),
        ([result("t1", content=[FOUND])], [answered("t1", "A\nhttp://a\nt\nt")]),
        ([result("t1", content=[{"type": "tool_reference", "tool_name": "f"}])], [answered("t1", "f")]),
        ([result("t1", content=[{"type": "document", "source": SOURCE}, TEXT])], [answered("t1", "body\nt")]),
        ([result("t1", content=[TEXT, IMAGE])], [answered("t1", f"t\n{LEFT_OUT}")]),
        ([result("t1", content="sun"), TEXT, TEXT], [answered("t1", "sun"), user(Text("t"), Text("t"))]),
        ([TEXT, result("t1", content="sun")], [answered("t1", "sun"), user(Text("t"))]),
        ([result("t1", content="sun"), {"type": "text", "text": ""}], [answered("t1", "sun")]),
        ([{"type": "document", "title": "T", "context": "C", "source": SOURCE}], [user(Text("T\nC\nbody"))]),
        ([{"type": "document", "source": PARTS}, FOUND], [user(Text("t\nt"), Text("A\nhttp://a\nt\nt"))]),
        ([{"type": "document", "source": {"type": "content", "content": "s"}}], [user(Text("s"))]),
    ],
)
async def test_results_in_all_their_shapes(content: object, messages: list[Message]) -> None:
    turns, _ = await turn_of(
        messages=[*HI, {"role": "assistant", "content": USED}, {"role": "user", "content": content}]
    )
    assert turns.last.input == (user(Text("hi")), Message(Role.ASSISTANT, CALLS), *messages)


async def test_what_a_model_cannot_read_in_a_result_is_named() -> None:
    asked = [*HI, {"role": "assistant", "content": USED}]
    _, headers = await turn_of(
        messages=[*asked, {"role": "user", "content": [result("t1", content=[TEXT, IMAGE, PDF])]}]
    )
    assert headers["x-warmlane-warnings"] == (
        "messages[2].content[0].content[1]: image left out, messages[2].content[0].content[2]: document left out"
    )
    cited = {"type": "document", "source": SOURCE, "citations": {"enabled": True}}
    _, headers = await turn_of(messages=[{"role": "user", "content": [TEXT, cited]}])
    assert headers["x-warmlane-warnings"] == "messages[0].content[1].citations"


@pytest.mark.parametrize(
    ("role", "block", "path"),
    [
        ("user", IMAGE, "type"),
        ("user", PDF, "source"),
        ("user", {"type": "document"}, "source"),
        ("user", {"type": "document", "source": "x"}, "source"),
        ("user", {"type": "document", "source": {"type": "text"}}, "source.data"),
        ("user", {"type": "document", "source": {"type": "content", "content": [IMAGE]}}, "source"),
        ("user", {"type": "tool_use", "id": "t", "name": "f", "input": {}}, "type"),
        ("user", {"type": "container_upload", "file_id": "f"}, "type"),
        ("user", result("", content="x"), "tool_use_id"),
        ("user", result("t", content=5), "content"),
        ("user", result("t", content=[5]), "content[0]"),
        ("user", result("t", content=[{"type": "audio"}]), "content[0].type"),
        ("user", result("t", content=[{"type": "text"}]), "content[0].text"),
        ("user", result("t", content=[{"type": "tool_reference"}]), "content[0].tool_name"),
        ("user", result("t", is_error="no"), "is_error"),
        ("assistant", result("t"), "type"),
        ("assistant", {"type": "tool_use", "name": "f", "input": {}}, "id"),
        ("assistant", {"type": "tool_use", "id": "t", "input": {}}, "name"),
        ("assistant", {"type": "tool_use", "id": "t", "name": "f"}, "input"),
        ("assistant", {"type": "tool_use", "id": "t", "name": "f", "input": "{}"}, "input"),
        ("assistant", {"type": "server_tool_use", "id": "t", "name": "f", "input": {}}, "type"),
        ("system", result("t"), "type"),
    ],
)
async def test_a_block_that_cannot_be_said_is_named(role: str, block: object, path: str) -> None:
    message = await refused(messages=[*HI, {"role": role, "content": [TEXT, block]}, *HI])
    assert f"'messages[1].content[1].{path}'" in message


async def test_blocks_nested_without_end_are_refused() -> None:
    block: dict[str, Any] = dict(TEXT)
    for _ in range(90):
        block = result("t", content=[block])
    assert "messages[0]" in await refused(messages=[{"role": "user", "content": [block]}])
    value: dict[str, Any] = {}
    for _ in range(150):
        value = {"a": value}
    used = {"type": "tool_use", "id": "t", "name": "f", "input": value}
    said = [*HI, {"role": "assistant", "content": [used]}, {"role": "user", "content": [result("t")]}]
    assert "messages[1].content[0].input" in await refused(messages=said)


async def test_our_own_answer_is_taken_back_without_a_word() -> None:
    """Thinking, its signature, text and calls, with their results: as a client replays them."""
    async with edge_client(FakeTurns(rich_turn())) as client:
        turns_path = {"model": MODEL, "max_tokens": 8, "messages": HI}
        said = (await client.post(PATH, json=turns_path)).json()["content"]
        replay = [*HI, {"role": "assistant", "content": said}, {"role": "user", "content": [result("call_a")]}]
        got = await client.post(PATH, json={"model": MODEL, "max_tokens": 8, "messages": replay})
    assert got.status_code == 200
    assert "x-warmlane-warnings" not in got.headers


async def test_thinking_of_another_server_is_read_and_named() -> None:
    thoughts = [
        {"type": "thinking", "thinking": "a", "signature": "EqQBCgIYAh"},
        {"type": "thinking", "thinking": "b", "signature": ""},
        {"type": "thinking", "thinking": "c"},
        {"type": "thinking", "thinking": "d", "signature": "wl1.00"},
        {"type": "thinking", "thinking": "", "signature": "EqQBCgIYAh"},
        {"type": "redacted_thinking", "data": "xx"},
        TEXT,
    ]
    turns, headers = await turn_of(messages=[*HI, {"role": "assistant", "content": thoughts}, *HI])
    assert turns.last.input[1] == Message(Role.ASSISTANT, (*map(Reasoning, "abcd"), Text("t")))
    where = "messages[1].content"
    assert headers["x-warmlane-warnings"].split(", ") == [
        f"{where}[0].signature: foreign",
        f"{where}[1].signature: unsigned",
        f"{where}[2].signature: unsigned",
        f"{where}[3].signature: altered",
        f"{where}[4].signature: foreign",
        f"{where}[5]",
    ]
