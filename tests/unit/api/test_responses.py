"""POST /v1/responses: what is accepted, what the turn is asked, and what is sent."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from openai.types.responses import Response
from openresponses_types.types import ResponseResource

from support.edge import UNIX_S, check_responses, edge_client, sse_events
from support.fake_turns import MODEL, FakeTurns, outcome, rich_turn, text_turn
from warmlane.api.responses.render import ResponseFacts, render_outcome
from warmlane.conversation.events import Failed, Finished, Loading, Started, Validated
from warmlane.conversation.messages import Message, Reasoning, Role, Text
from warmlane.conversation.turn import Dialect, StopReason, Usage
from warmlane.errors import EngineFault

PATH = "/v1/responses"
KEYS = """id object created_at completed_at status incomplete_details model previous_response_id instructions output
error tools tool_choice truncation parallel_tool_calls text top_p presence_penalty frequency_penalty top_logprobs
temperature reasoning usage max_output_tokens max_tool_calls store background service_tier metadata
safety_identifier prompt_cache_key""".split()


async def ask(turns: FakeTurns, **fields: Any) -> dict[str, Any]:
    async with edge_client(turns) as client:
        got = await client.post(PATH, json={"model": MODEL, "input": "hi", **fields})
    assert got.status_code == 200, got.text
    body: dict[str, Any] = got.json()
    Response.model_validate(body)
    ResponseResource.model_validate(body)
    assert set(KEYS) <= set(body)
    return body


async def stream(turns: FakeTurns, **fields: Any) -> list[dict[str, Any]]:
    async with edge_client(turns) as client:
        got = await client.post(PATH, json={"model": MODEL, "input": "hi", "stream": True, **fields})
    events = sse_events(got.content, named=True)
    check_responses(events)
    ResponseResource.model_validate(events[-1]["response"])
    return events


async def refused(**fields: Any) -> dict[str, Any]:
    turns = FakeTurns()
    async with edge_client(turns) as client:
        got = await client.post(PATH, json={"model": MODEL, "input": "hi", **fields})
    assert got.status_code == 400, got.text
    assert (turns.open_permits, turns.requests) == (0, [])
    error: dict[str, Any] = got.json()["error"]
    assert error["param"] in error["message"]
    return error


async def test_a_plain_answer() -> None:
    turns = FakeTurns()
    body = await ask(turns)
    assert body["output"] == [
        {
            "type": "message",
            "id": body["output"][0]["id"],
            "status": "completed",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Hello world", "annotations": [], "logprobs": []}],
        }
    ]
    assert body["usage"] == {
        "input_tokens": 12,
        "input_tokens_details": {"cached_tokens": 5, "cache_write_tokens": 0},
        "output_tokens": 3,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 15,
    }
    assert (body["created_at"], body["completed_at"], body["store"]) == (UNIX_S, UNIX_S, True)
    assert body["prompt_cache_diagnostics"]["type"] == "cache_hit"
    assert turns.last.response_id == body["id"]
    assert body["id"].startswith("resp_")
    assert len(body["id"]) == 53


async def test_cache_facts_are_in_the_headers() -> None:
    async with edge_client(FakeTurns()) as client:
        got = await client.post(PATH, json={"model": MODEL, "input": "hi"})
    assert got.headers["x-session-cache"] == "hit"
    assert got.headers["x-cached-tokens"] == "5"
    assert got.headers["x-cache-miss-reason"] == "hit"
    assert "x-warmlane-warnings" not in got.headers


async def test_the_turn_is_asked_what_the_request_says() -> None:
    turns = FakeTurns()
    body = await ask(
        turns,
        instructions="be brief",
        previous_response_id="resp_1",
        store=False,
        max_output_tokens=64,
        temperature=0,
        top_p=0.5,
        presence_penalty=1,
        frequency_penalty=-1,
        metadata={"retention_seconds": "3600", "k": "v"},
        prompt_cache_key="key-1234",
        user="u",
        safety_identifier="s",
        max_tool_calls=3,
        parallel_tool_calls=False,
        truncation="disabled",
        tool_choice="none",
    )
    request = turns.last
    assert (request.dialect, request.instructions) == (Dialect.RESPONSES, "be brief")
    assert (request.previous_response_id, request.prompt_cache_key) == ("resp_1", "key-1234")
    assert (request.store, request.retention_s, request.max_output_tokens) == (False, 3600.0, 64)
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.presence_penalty, sampling.frequency_penalty) == (
        0,
        0.5,
        1,
        -1,
    )
    assert (body["temperature"], body["top_p"], body["tool_choice"]) == (0, 0.5, "none")
    assert body["metadata"] == {"retention_seconds": "3600", "k": "v"}
    assert (body["user"], body["safety_identifier"], body["prompt_cache_key"]) == ("u", "s", "key-1234")
    assert (body["instructions"], body["previous_response_id"], body["store"]) == ("be brief", "resp_1", False)
    assert (body["parallel_tool_calls"], body["max_tool_calls"], body["max_output_tokens"]) == (False, 3, 64)


async def test_the_echo_gives_the_same_response_again() -> None:
    turns = FakeTurns()
    body = await ask(turns, instructions="x", metadata={"a": "b"}, temperature=0.3)
    finished = turns.script[-1]
    assert isinstance(finished, Finished)
    again = render_outcome(ResponseFacts.from_echo(turns.last.echo), finished.outcome, completed_at=UNIX_S)
    assert json.loads(msgspec.json.encode(again)) == body


USER, ASSISTANT = Role.USER, Role.ASSISTANT


@pytest.mark.parametrize(
    ("items", "messages"),
    [
        ("hi", [Message(USER, (Text("hi"),))]),
        ([{"role": "user", "content": "hi"}], [Message(USER, (Text("hi"),))]),
        (
            [{"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "d"}]}],
            [Message(Role.DEVELOPER, (Text("d"),))],
        ),
        (
            [
                {"role": "user", "content": "a"},
                {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
                {"role": "system", "content": "late"},
                {"role": "user", "content": [{"type": "input_text", "text": "b"}, {"type": "input_text", "text": "c"}]},
            ],
            [
                Message(USER, (Text("a"),)),
                Message(ASSISTANT, (Text("no"),)),
                Message(Role.SYSTEM, (Text("late"),)),
                Message(USER, (Text("b"), Text("c"))),
            ],
        ),
        (
            [
                {"role": "user", "content": "q"},
                {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]},
                {
                    "type": "message",
                    "id": "msg_1",
                    "status": "completed",
                    "phase": "final_answer",
                    "role": "assistant",
                    "content": [{"type": "output_text", "text": "a", "annotations": [], "logprobs": []}],
                },
            ],
            [Message(USER, (Text("q"),)), Message(ASSISTANT, (Reasoning("hm"), Text("a")))],
        ),
        (
            [
                {"type": "reasoning", "summary": [], "content": None, "encrypted_content": "foreign"},
                {"role": "assistant", "content": ""},
                {"role": "assistant", "content": None},
                {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "raw"}]},
                {"role": "user", "content": [{"type": "input_text", "text": ""}]},
            ],
            [
                Message(ASSISTANT, ()),
                Message(ASSISTANT, ()),
                Message(ASSISTANT, (Reasoning("raw"),)),
                Message(USER, ()),
            ],
        ),
    ],
)
async def test_input_in_all_its_shapes(items: object, messages: list[Message]) -> None:
    turns = FakeTurns()
    await ask(turns, input=items)
    assert list(turns.last.input) == messages


async def test_our_own_output_may_be_fed_back() -> None:
    turns = FakeTurns()
    first = await ask(turns)
    await ask(turns, input=[{"role": "user", "content": "hi"}, *first["output"], {"role": "user", "content": "more"}])
    assert turns.last.input[1] == Message(ASSISTANT, (Text("Hello world"),))


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": ""}, "input"),
        ({"input": []}, "input"),
        ({"input": None}, "input"),
        ({"input": 5}, "input"),
        ({"input": ["x"]}, "input[0]"),
        ({"input": [{"role": "user"}]}, "input[0].content"),
        ({"input": [{"role": "user", "content": 7}]}, "input[0].content"),
        ({"input": [{"role": "robot", "content": "x"}]}, "input[0].role"),
        ({"input": [{"content": "x"}]}, "input[0].role"),
        ({"input": [{"role": "user", "content": [{"text": "x"}]}]}, "input[0].content[0].type"),
        ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "input[0].content[0].text"),
        ({"input": [{"role": "user", "content": [{"type": "input_text", "text": 5}]}]}, "input[0].content[0].text"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0].type"),
        ({"input": [{"type": "no_such_item"}]}, "input"),
        ({"input": [{"type": 5}]}, "input[0].type"),
        ({"temperature": 2.1}, "temperature"),
        ({"temperature": "1"}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"temperature": -0.1}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.1}, "top_p"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"max_output_tokens": -1}, "max_output_tokens"),
        ({"max_output_tokens": 1.5}, "max_output_tokens"),
        ({"max_output_tokens": True}, "max_output_tokens"),
        ({"stream": "yes"}, "stream"),
        ({"store": 1}, "store"),
        ({"instructions": ["x"]}, "instructions"),
        ({"metadata": {"a": 1}}, "metadata.a"),
        ({"metadata": {str(n): "" for n in range(17)}}, "metadata"),
        ({"metadata": {"a": "x" * 513}}, "metadata.a"),
        ({"metadata": {"retention_seconds": "59"}}, "metadata.retention_seconds"),
        ({"metadata": {"retention_seconds": "7776001"}}, "metadata.retention_seconds"),
        ({"metadata": {"retention_seconds": "1e3"}}, "metadata.retention_seconds"),
        ({"metadata": {"retention_seconds": "²"}}, "metadata.retention_seconds"),
        ({"cache_salt": ""}, "cache_salt"),
        ({"max_tokens": 5}, "max_tokens"),
        ({"stop": ["x"]}, "stop"),
        ({"seed": 0}, "seed"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"cache_salt": "é" * 129}, "cache_salt"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"text": {"format": {"type": "yaml"}}}, "text.format.type"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format.schema"),
        ({"text": {"format": {"type": "json_schema", "schema": []}}}, "text.format.schema"),
        ({"text": {"format": {"type": "json_schema", "json_schema": {"name": "a"}}}}, "text.format.json_schema.schema"),
        ({"reasoning": {"effort": "some"}}, "reasoning.effort"),
        ({"reasoning": "high"}, "reasoning"),
        ({"conversation": 1}, "conversation"),
        ({"conversation": {}}, "conversation.id"),
        ({"conversation": "conv_1", "previous_response_id": "resp_1"}, "conversation"),
        ({"conversation": "conv_1", "store": False}, "store"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"truncation": "some"}, "truncation"),
    ],
)
async def test_a_wrong_or_unsupported_field_is_named(fields: dict[str, Any], param: str) -> None:
    assert (await refused(**fields))["param"] == param


async def test_what_has_no_effect_is_named() -> None:
    turns = FakeTurns()
    fields: dict[str, Any] = {
        "reasoning": {"effort": "high", "mode": "pro"},
        "text": {"verbosity": "low", "format": {"type": "text", "schema": {}}},
        "include": ["reasoning.encrypted_content", "file_search_call.results"],
        "service_tier": "flex",
        "client_metadata": {"a": "b"},
        "stream_options": {"include_obfuscation": True, "more": 1},
        "prompt_cache_options": {"comparison_response_id": "resp_1", "ttl": "30m"},
        "store": False,
        "metadata": {"retention_seconds": "60"},
        "moderation": None,
        "tools": [],
        "top_logprobs": 0,
        "background": False,
        "max_tool_calls": 3,
    }
    async with edge_client(turns) as client:
        part = {"type": "input_text", "text": "hi", "annotations": [], "prompt_cache_breakpoint": {"mode": "explicit"}}
        told = [{"role": "user", "content": [part]}]
        got = await client.post(PATH, json={"model": MODEL, "input": told, **fields})
    assert set(got.headers["x-warmlane-warnings"].split(", ")) == {
        "input[0].content[0].prompt_cache_breakpoint",
        "text.format.schema",
        "stream_options.more",
        "prompt_cache_options.ttl",
        "metadata.retention_seconds",
        "reasoning.mode",
        "text.verbosity",
        "include[1]",
        "max_tool_calls",
        "service_tier",
        "client_metadata",
        "stream_options.include_obfuscation",
    }


async def test_warnings_are_bounded_and_encoded() -> None:
    fields = {f"field é, {n:03}": 1 for n in range(200)}
    async with edge_client(FakeTurns()) as client:
        got = await client.post(PATH, json={"model": MODEL, "input": "hi", "stream": True, **fields})
    value = got.headers["x-warmlane-warnings"]
    assert len(value) <= 1024
    *names, count = value.split(", ")
    assert names[0] == "field %C3%A9%2C 000"
    assert int(count.removeprefix("+")) == 200 - len(names)


async def test_a_warning_that_is_too_late_for_the_header_is_in_the_last_event() -> None:
    late = [Loading(), Validated(("the schema's 'not'",))]
    for end in (text_turn("x")[1:], [Failed(EngineFault("it broke"))]):
        last = (await stream(FakeTurns([*late, *end])))[-1]
        assert last["warnings"] == ["the schema's 'not'"]
    async with edge_client(FakeTurns([*late[1:], *text_turn("x")[1:]])) as client:
        got = await client.post(PATH, json={"model": MODEL, "input": "hi", "stream": True})
    assert got.headers["x-warmlane-warnings"] == "the schema's 'not'"
    assert "warnings" not in sse_events(got.content, named=True)[-1]


async def test_a_stream_of_text() -> None:
    events = await stream(FakeTurns())
    assert [event["type"].removeprefix("response.") for event in events] == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert events[0]["response"]["usage"] is None
    assert events[0]["response"]["output"] == []
    assert all(event["logprobs"] == [] for event in events if "output_text" in event["type"])


async def test_a_stream_of_everything_equals_the_whole_answer() -> None:
    events = await stream(FakeTurns(rich_turn()))
    whole = await ask(FakeTurns(rich_turn()))
    strip = msgspec.json.encode
    streamed = events[-1]["response"]["output"]
    assert [item["type"] for item in streamed] == ["reasoning", "message", "function_call", "function_call"]
    for one, other in zip(streamed, whole["output"], strict=True):
        assert strip({**one, "id": ""}) == strip({**other, "id": ""})
        assert one["id"].split("_")[0] == other["id"].split("_")[0]
    assert "encrypted_content" not in streamed[0]


async def test_a_cut_reply_is_incomplete() -> None:
    script = text_turn("half a", stop_reason=StopReason.LENGTH)
    for body in (await ask(FakeTurns(script)), (await stream(FakeTurns(script)))[-1]["response"]):
        assert body["status"] == "incomplete"
        assert body["incomplete_details"] == {"reason": "max_output_tokens"}
        assert (body["output"][0]["status"], body["completed_at"]) == ("incomplete", None)
        assert body["usage"]["output_tokens"] == 3
    assert (await stream(FakeTurns(script)))[-1]["type"] == "response.incomplete"


async def test_a_turn_that_failed_says_what_it_cost() -> None:
    script = [Validated(), Started(12, 5), Failed(EngineFault("it broke"), Usage(12, 5, 7, 3))]
    events = await stream(FakeTurns(script))
    assert events[-1]["type"] == "response.failed"
    assert events[-1]["response"]["usage"]["total_tokens"] == 19
    assert events[-1]["response"]["usage"]["output_tokens_details"] == {"reasoning_tokens": 3}


async def test_an_empty_reply_is_a_message_of_no_words() -> None:
    for script in (text_turn(), text_turn("", "")):
        whole, events = await ask(FakeTurns(script)), await stream(FakeTurns(script))
        for body in (whole, events[-1]["response"]):
            assert [(item["type"], item["content"][0]["text"]) for item in body["output"]] == [("message", "")]


def test_neighbouring_texts_are_one_item() -> None:
    facts = ResponseFacts(id="resp_00", created_at=1, model=MODEL)
    rendered = render_outcome(facts, outcome(Text("a"), Text(""), Text("b")), completed_at=2)
    assert [item.id for item in rendered.output] == ["msg_000000"]
