"""Bodies that are wrong: each is refused in the route's own envelope, and none is a fault of the server."""

from __future__ import annotations

import copy
import json
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.dialects import PATHS, check_envelope
from support.edge import edge_client
from support.fake_turns import MODEL, FakeHost, FakeTurns
from support.malformed import N_BODIES, malformed_bodies

DIALECTS = tuple(PATHS)
CACHED = {"cache_control": {"type": "ephemeral"}}
SCHEMA = {"type": "object", "properties": {"a": {"type": "string", "enum": ["x"]}}, "required": ["a"]}
FULL: dict[str, dict[str, Any]] = {
    "responses": {
        "model": MODEL,
        "instructions": "s",
        "tools": [
            {"type": "function", "name": "f", "description": "d", "parameters": SCHEMA, "strict": True},
            {"type": "web_search", "filters": {"allowed_domains": ["a.b"]}},
        ],
        "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
        "text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA, "strict": True}, "verbosity": "low"},
        "reasoning": {"effort": "low", "summary": "auto"},
        "include": ["reasoning.encrypted_content", "message.output_text.logprobs"],
        "top_logprobs": 2,
        "metadata": {"k": "v", "retention_seconds": "60"},
        "prompt_cache_options": {"comparison_response_id": "resp_x"},
        "stream_options": {"include_obfuscation": False},
        "max_output_tokens": 8,
        "truncation": "disabled",
        "parallel_tool_calls": True,
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
            {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]},
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": "t", "annotations": [], "logprobs": []}],
            },
            {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "r"}]},
            {"type": "additional_tools", "tools": [{"type": "function", "name": "g", "parameters": SCHEMA}]},
        ],
    },
    "messages": {
        "model": MODEL,
        "max_tokens": 8,
        "system": [{"type": "text", "text": "s", **CACHED}],
        "tools": [{"name": "f", "description": "d", "input_schema": SCHEMA, **CACHED}],
        "tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": True},
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": SCHEMA}},
        "metadata": {"user_id": "u"},
        "stop_sequences": ["END"],
        "messages": [
            {"role": "user", "content": "hi"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "x"},
                    {"type": "text", "text": "t"},
                    {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": "x"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "r"}]},
                    {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "d"}},
                ],
            },
        ],
    },
    "chat": {
        "model": MODEL,
        "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": SCHEMA}}],
        "tool_choice": {
            "type": "allowed_tools",
            "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "f"}}]},
        },
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA, "strict": True}},
        "reasoning_effort": "low",
        "logprobs": True,
        "top_logprobs": 2,
        "stop": ["END"],
        "stream_options": {"include_usage": True},
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hi"}]},
            {
                "role": "assistant",
                "content": None,
                "reasoning_content": "hm",
                "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "r"},
        ],
    },
}


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of everything inside a body."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [here for key, item in inner for here in ((*path, key), *places(item, (*path, key)))]


def replaced(body: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    changed: Any = copy.deepcopy(body)
    holder = changed
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    return changed  # type: ignore[no-any-return]


ODD = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from(["text", "tool_use", "tool_result", "document", "function", "auto", "none", "object"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "text", "name", "function", "content", "source", "id"]), inner)
    ),
    max_leaves=8,
)


async def answer(client: httpx.AsyncClient, name: str, content: bytes, headers: dict[str, str]) -> httpx.Response:
    return await client.post(PATHS[name], content=content, headers={"content-type": "application/json", **headers})


@pytest.mark.parametrize("name", DIALECTS)
async def test_the_whole_request_is_sound(name: str) -> None:
    async with edge_client(FakeTurns()) as client:
        got = await answer(client, name, json.dumps(FULL[name]).encode(), {})
    assert got.status_code == 200, got.text


@st.composite
def odd_bodies(draw: st.DrawFn, name: str) -> dict[str, Any]:
    """The whole request of a dialect with one value that may be anything."""
    path = draw(st.sampled_from(places(FULL[name])))
    return replaced(FULL[name], path, draw(ODD))


@pytest.mark.parametrize("name", DIALECTS)
@settings(max_examples=300, deadline=None)
@given(data=st.data())
async def test_one_odd_value_anywhere_is_answered_or_refused(name: str, data: st.DataObject) -> None:
    body = data.draw(odd_bodies(name))
    turns = FakeTurns()
    async with edge_client(turns) as client:
        got = await answer(client, name, json.dumps(body).encode(), {})
    if got.status_code == 200:
        return
    check_envelope(name, got.status_code, got.headers, got.content)
    assert turns.open_permits == 0


@pytest.mark.parametrize("name", ["messages", "chat"])
async def test_three_hundred_malformed_bodies_are_refused_as_such(name: str) -> None:
    n_bodies = 0
    turns = FakeTurns()
    async with edge_client(turns, host=FakeHost(aliases={"simulated": MODEL})) as client:
        for body in malformed_bodies(name):
            got = await answer(client, name, body.content, dict(body.headers))
            check_envelope(name, got.status_code, got.headers, got.content)
            n_bodies += 1
    assert n_bodies >= N_BODIES
    assert (turns.open_permits, turns.requests) == (0, [])
