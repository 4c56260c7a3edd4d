"""Faults other servers have had, tried on a live one: usage, ends of replies, tools and schemas. See docs/cases.md."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema
import pytest

from support import strict
from support.dialects import PATHS, body_of, streamed_text, told
from support.server import LiveServer, live_server

pytestmark = pytest.mark.live

DIALECTS = pytest.mark.parametrize("name", PATHS)
STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
SMALL_WINDOW = 512


@pytest.fixture
def client(paged_server: LiveServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=paged_server.base_url, timeout=60) as made:
        yield made


@pytest.fixture(scope="module")
def small() -> Iterator[httpx.Client]:
    """A server whose model has a small window."""
    with (
        live_server("--engine", "simulated", "--ctx", str(SMALL_WINDOW)) as server,
        httpx.Client(base_url=server.base_url, timeout=60) as made,
    ):
        yield made


def post(client: httpx.Client, name: str, asked: str, **extra: Any) -> httpx.Response:
    return client.post(PATHS[name], json=body_of(name, [("user", asked)], **extra))


def events_of(client: httpx.Client, name: str, asked: str, **extra: Any) -> list[dict[str, Any]]:
    body = body_of(name, [("user", asked)], stream=True, **extra)
    with client.stream("POST", PATHS[name], json=body) as response:
        return [event for event in strict.sse(response) if event.get("type") != "ping"]


def end_of(name: str, answer: Any) -> str:
    """Why a whole answer ended."""
    if name == "responses":
        details = answer["incomplete_details"]
        return str(answer["status"] if details is None else details["reason"])
    return str(answer["stop_reason"] if name == "messages" else answer["choices"][0]["finish_reason"])


def text_of(name: str, answer: Any) -> str:
    """The text of a whole answer. Of Responses that are held to a schema: the Open Responses types know none."""
    if name == "responses":
        parts = [part for item in answer["output"] if item["type"] == "message" for part in item["content"]]
        return "".join(part["text"] for part in parts)
    if name == "messages":
        return "".join(block["text"] for block in answer["content"] if block["type"] == "text")
    return answer["choices"][0]["message"]["content"] or ""


CUT = {"responses": "max_output_tokens", "messages": "max_tokens", "chat": "length"}
MADE = {"responses": '"type":"function_call"', "messages": '"type":"tool_use"', "chat": '"tool_calls":['}
"""What a stream holds if it made a call."""
CALLED = {"responses": "completed", "messages": "tool_use", "chat": "tool_calls"}


# usage


def test_a_warm_call_costs_the_same_in_every_dialect(client: httpx.Client) -> None:
    used = set()
    for letter, name in zip("xyz", PATHS, strict=True):
        asked = f"{letter} of the same length everywhere"
        told(name, post(client, name, asked))
        again = told(name, post(client, name, asked))
        used.add((again.prompt_tokens, again.cached_tokens, again.output_tokens))
    ((prompt, cached, output),) = used
    assert cached == prompt - 1
    assert output == len("echo: x of the same length everywhere") + 1


# ends


@pytest.mark.parametrize("after", [0, 5])
@DIALECTS
def test_a_stream_of_a_reply_that_failed_ends_once_as_one_that_failed(
    client: httpx.Client, name: str, after: int
) -> None:
    kinds = [event.get("type", "chunk") for event in events_of(client, name, f"FAIL:{after} and more")]
    if name == "responses":
        assert kinds[-2:] == ["error", "response.failed"]
        assert not {"response.completed", "response.incomplete"} & set(kinds)
        assert kinds.count("response.failed") == 1
    elif name == "messages":
        assert (kinds[-1], kinds.count("error")) == ("error", 1)
        assert "message_stop" not in kinds
        assert ("message_start" in kinds) is (len(kinds) > 1)
    else:
        events = events_of(client, name, f"FAIL:{after} and more")
        assert [set(event) == {"error"} for event in events].count(True) == 1
        assert set(events[-1]) == {"error"}


@STREAMED
@DIALECTS
def test_an_empty_reply_is_a_whole_one(client: httpx.Client, name: str, stream: bool) -> None:
    if stream:
        with client.stream("POST", PATHS[name], json=body_of(name, [("user", "EMIT:")], stream=True)) as response:
            assert streamed_text(name, response) == ""
        return
    answer = post(client, name, "EMIT:")
    assert told(name, answer).text == ""
    assert end_of(name, answer.json()) in ("completed", "end_turn", "stop")


@DIALECTS
def test_a_reply_that_reaches_the_window_ends_as_by_its_limit(small: httpx.Client, name: str) -> None:
    """Whatever was asked for: a prompt that fits is never refused for the room its reply was promised."""
    answer = post(small, name, "SLOW:0 " + "x" * (SMALL_WINDOW - 150), max_tokens=100_000)
    assert answer.status_code == 200, answer.text
    usage = told(name, answer)
    assert usage.prompt_tokens + usage.output_tokens == SMALL_WINDOW
    assert end_of(name, answer.json()) == CUT[name]


@pytest.mark.parametrize("model", ["simulated:latest", "Simulated", "gpt-5"])
@DIALECTS
def test_a_model_under_another_name_is_a_404_that_lists_those_there_are(
    client: httpx.Client, name: str, model: str
) -> None:
    answer = post(client, name, "hi", model=model)
    assert answer.status_code == 404
    error = answer.json()["error"]
    assert model in error["message"]
    assert "Available: simulated" in error["message"]
    assert error["type"] == "not_found_error" if name == "messages" else error["code"] == "model_not_found"


# calls


def tools_of(name: str, **schemas: Any) -> list[dict[str, Any]]:
    functions = [{"name": tool, "description": "d", "parameters": schema} for tool, schema in schemas.items()]
    if name == "chat":
        return [{"type": "function", "function": function} for function in functions]
    if name == "responses":
        return [{"type": "function", **function} for function in functions]
    return [{"name": f["name"], "description": "d", "input_schema": f["parameters"]} for f in functions]


def calls_of(name: str, answer: Any) -> list[tuple[str, Any]]:
    """Names and arguments of the calls of a whole answer; arguments that are no JSON as they stand."""
    if name == "messages":
        return [(b["name"], b["input"]) for b in answer["content"] if b["type"] == "tool_use"]
    if name == "responses":
        made = [item for item in answer["output"] if item["type"] == "function_call"]
    else:
        made = [call["function"] for call in answer["choices"][0]["message"].get("tool_calls") or ()]
    return [(call["name"], json.loads(call["arguments"])) for call in made]


CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
BROKEN = {
    "another order": 'EMIT:</tool_call>{"name": "get", <tool_call>',
    "no JSON": "EMIT:<tool_call>\nget Oslo\n</tool_call>",
    "no name": 'EMIT:<tool_call>\n{"arguments": {"city": "Oslo"}}\n</tool_call>',
    "cut in the name": 'EMIT:Wait. <tool_call>\n{"name": "ge',
}


@pytest.mark.parametrize("asked", BROKEN.values(), ids=BROKEN.keys())
@STREAMED
@DIALECTS
def test_a_call_that_is_none_is_an_answer_and_leaves_the_session_warm(
    client: httpx.Client, name: str, stream: bool, asked: str
) -> None:
    tools = tools_of(name, get=CITY)
    if stream:
        body = body_of(name, [("user", asked)], stream=True, tools=tools)
        with client.stream("POST", PATHS[name], json=body) as response:
            assert streamed_text(name, response)
        return
    answer = post(client, name, asked, tools=tools)
    one = told(name, answer)
    assert one.text
    assert calls_of(name, answer.json()) == []
    if name == "responses":
        two = told(name, post(client, name, "more", tools=tools, previous_response_id=one.id))
        assert two.cached_tokens >= one.held_tokens


@DIALECTS
def test_a_call_of_a_tool_nobody_offered_is_told(client: httpx.Client, name: str) -> None:
    answer = post(client, name, 'USE_TOOL:nobody {"a": 1}', tools=tools_of(name, get=CITY))
    assert answer.status_code == 200
    assert calls_of(name, answer.json()) == [("nobody", {"a": 1})]
    assert end_of(name, answer.json()) == CALLED[name]


EXOTIC: dict[str, Any] = {
    "type": "object",
    "properties": {
        "plain": {"type": "string", "pattern": r"^\d{2,4}-[a-z]+$"},
        "ahead": {"type": "string", "pattern": "^(?=.*x)(?!y).+$"},
        "node": {"$ref": "#/$defs/node"},
        "either": {"anyOf": [{"type": "integer"}, {"const": "none"}, {"type": "null"}]},
        "when": {"type": "string", "format": "date-time"},
        "odd": {"type": "string", "format": "iban"},
        "not": {"not": {"type": "string"}},
        **{f"p{i}": {"type": "integer"} for i in range(300)},
    },
    "required": ["plain", "either"],
    "additionalProperties": False,
    "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "v": {"enum": [1, "a"]}}}},
}
FITTING = {"plain": "12-ab", "either": "none", "ahead": "axb", "node": {"next": {"v": "a"}}, "p299": 3}
"""In the order that a tool's properties are put in, and enforced: required ones first, then by name."""


@pytest.mark.parametrize("strict_tools", [False, True], ids=["lax", "strict"])
@DIALECTS
def test_schemas_no_grammar_can_enforce_whole_are_enforced_in_part(
    client: httpx.Client, name: str, strict_tools: bool
) -> None:
    tools = tools_of(name, set=EXOTIC)
    if strict_tools:
        (tools[0]["function"] if name == "chat" else tools[0])["strict"] = True
    choice = {"type": "any"} if name == "messages" else "required"
    answer = post(client, name, f"USE_TOOL:set {json.dumps(FITTING)}", tools=tools, tool_choice=choice)
    assert answer.status_code == 200, answer.text
    assert calls_of(name, answer.json()) == [("set", FITTING)]
    warnings = answer.headers["x-warmlane-warnings"]
    assert all(word in warnings for word in ("ahead", "pattern", "not"))
    missing = post(client, name, 'USE_TOOL:set {"p0": 1, "q": 2}', tools=tools, tool_choice=choice, max_tokens=900)
    ((_, made),) = calls_of(name, missing.json())
    assert {"plain", "either"} <= made.keys() <= EXOTIC["properties"].keys()


# structured output

LIST: dict[str, Any] = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["été", "hiver 🌨"]},
        "rows": {
            "type": "array",
            "maxItems": 2,
            "items": {"type": "array", "items": {"type": "string", "maxLength": 4}, "maxItems": 2},
        },
    },
    "required": ["kind", "rows"],
    "additionalProperties": False,
}
GOOD = '{"kind": "hiver 🌨", "rows": [["東京", "a"], []]}'
WRITTEN = {
    "as asked": GOOD,
    "another kind": '{"kind": "printemps", "rows": []}',
    "too many": '{"kind": "été", "rows": [["a"], ["b"], ["c", "d", "e"]]}',
    "prose": "Sure! Here it is.",
}


def held_to(name: str, *, thinks: bool, tools: bool) -> dict[str, Any]:
    """The fields that ask for `LIST`, for a thought, and that offer tools."""
    schema = {"name": "list", "schema": LIST, "strict": True}
    if name == "responses":
        fields: dict[str, Any] = {"text": {"format": {"type": "json_schema", **schema}}}
        fields |= {"reasoning": {"effort": "low"}} if thinks else {}
    elif name == "chat":
        fields = {"response_format": {"type": "json_schema", "json_schema": schema}}
        fields |= {"reasoning_effort": "low"} if thinks else {}
    else:
        fields = {"output_config": {"format": {"type": "json_schema", "schema": LIST}}}
        fields |= {"thinking": {"type": "enabled", "budget_tokens": 1024}} if thinks else {}
    return fields | ({"tools": tools_of(name, get=CITY)} if tools else {})


@pytest.mark.parametrize("written", WRITTEN.values(), ids=WRITTEN.keys())
@pytest.mark.parametrize("tools", [False, True], ids=["alone", "tools"])
@pytest.mark.parametrize("thinks", [False, True], ids=["plain", "thinks"])
@STREAMED
@DIALECTS
def test_every_finished_answer_is_what_its_schema_asks_for(
    client: httpx.Client, name: str, stream: bool, thinks: bool, tools: bool, written: str
) -> None:
    asked = f"THINK:one, deux, 三\nEMIT:{written}" if thinks else f"EMIT:{written}"
    fields = held_to(name, thinks=thinks, tools=tools)
    if stream:
        body = body_of(name, [("user", asked)], stream=True, max_tokens=2048, **fields)
        with client.stream("POST", PATHS[name], json=body) as response:
            text = streamed_text(name, response)
            called = MADE[name] in response.text
    else:
        answer = post(client, name, asked, max_tokens=2048, **fields).json()
        text, called = text_of(name, answer), bool(calls_of(name, answer))
    if called:
        assert (tools, text) == (True, "")
        return
    jsonschema.validate(json.loads(text), LIST)
    if written == GOOD:
        assert json.loads(text) == json.loads(GOOD)


@DIALECTS
def test_an_answer_cut_before_it_fits_its_schema_says_so(client: httpx.Client, name: str) -> None:
    answer = post(client, name, f"EMIT:{GOOD}", max_tokens=20, **held_to(name, thinks=False, tools=False))
    assert GOOD.startswith(text_of(name, answer.json()))
    assert end_of(name, answer.json()) == CUT[name]
