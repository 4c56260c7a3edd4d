"""POST /v1/messages and count_tokens."""

from __future__ import annotations

import json
from typing import Any

import pytest
from anthropic.types import MessageTokensCount, ThreadUnsupportedRequestErrorDetails

from support.edge import edge_client
from support.fake_turns import MODEL, FakeHost, FakeTurns, rich_turn, text_turn
from support.messages import COUNT, HI, PATH, ask, stream
from warmlane.api.messages.content import without_client_lines
from warmlane.api.settings import EdgeSettings
from warmlane.conversation.events import Loading, Validated
from warmlane.conversation.messages import Message, Reasoning, Role, Text
from warmlane.conversation.tools import TextFormat, Thinking
from warmlane.conversation.turn import Dialect, StopReason

BILLING = "x-anthropic-billing-header: cc_version=2.1.0; cc_entrypoint=cli; cch=ab12c;"


async def test_a_plain_answer() -> None:
    turns = FakeTurns()
    body = await ask(turns)
    assert body["content"] == [{"type": "text", "text": "Hello world"}]
    assert (body["stop_reason"], body["stop_sequence"]) == ("end_turn", None)
    usage = body["usage"]
    assert (usage["input_tokens"], usage["cache_read_input_tokens"], usage["cache_creation_input_tokens"]) == (7, 5, 0)
    assert usage["output_tokens"] == 3
    assert (turns.last.dialect, turns.last.response_id) == (Dialect.MESSAGES, body["id"])
    assert (turns.last.store, turns.last.prompt_cache_key) == (False, None)
    assert body["id"].startswith("msg_")


async def test_the_turn_is_asked_what_the_request_says() -> None:
    turns = FakeTurns()
    fields = {"max_tokens": 9, "stop_sequences": ["a", "b"], "temperature": 1, "top_p": 0.9, "top_k": 40}
    for version in ("2023-06-01", "2026-10-21", "2099-01-01"):
        async with edge_client(turns) as client:
            got = await client.post(
                f"{PATH}?beta=true",
                json={"model": MODEL, "messages": HI, **fields},
                headers={"anthropic-version": version, "anthropic-beta": "a,b"},
            )
        assert got.status_code == 200
    request = turns.last
    assert (request.max_output_tokens, request.stop) == (9, ("a", "b"))
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (1, 0.9, 40)


USER, ASSISTANT, SYSTEM = Role.USER, Role.ASSISTANT, Role.SYSTEM
RESULT = {"type": "tool_result"}
BLANK = {"type": "text", "text": ""}
THOUGHT = {"type": "thinking", "thinking": "x"}
CACHED = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}


@pytest.mark.parametrize(
    ("fields", "messages"),
    [
        ({"messages": HI}, [Message(USER, (Text("hi"),))]),
        ({"system": "be kind"}, [Message(SYSTEM, (Text("be kind"),)), Message(USER, (Text("hi"),))]),
        (
            {"system": [{"type": "text", "text": "a", **CACHED}, {"type": "text", "text": "b"}], **CACHED},
            [Message(SYSTEM, (Text("a"), Text("b"))), Message(USER, (Text("hi"),))],
        ),
        ({"system": ""}, [Message(USER, (Text("hi"),))]),
        (
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [{"type": "text", "text": "q", **CACHED}, {"type": "text", "text": ""}],
                    },
                    {
                        "role": "assistant",
                        "content": [
                            {"type": "thinking", "thinking": "hm", "signature": "foreign"},
                            {"type": "thinking", "thinking": "", "signature": ""},
                            {"type": "redacted_thinking", "data": "xx"},
                            {"type": "text", "text": "a", "citations": None},
                        ],
                    },
                    {"role": "system", "content": "1000 tokens left"},
                    {"role": "developer", "content": [{"type": "text", "text": "d"}]},
                    {"role": "user", "content": ""},
                ]
            },
            [
                Message(USER, (Text("q"),)),
                Message(ASSISTANT, (Reasoning("hm"), Text("a"))),
                Message(SYSTEM, (Text("1000 tokens left"),)),
                Message(Role.DEVELOPER, (Text("d"),)),
                Message(USER, ()),
            ],
        ),
        (
            {"system": [{"type": "text", "text": BILLING}, {"type": "text", "text": "You code."}]},
            [Message(SYSTEM, (Text("You code."),)), Message(USER, (Text("hi"),))],
        ),
        (
            {"system": f"{BILLING}\nYou code."},
            [Message(SYSTEM, (Text("You code."),)), Message(USER, (Text("hi"),))],
        ),
        ({"system": BILLING}, [Message(USER, (Text("hi"),))]),
    ],
)
async def test_input_in_all_its_shapes(fields: dict[str, Any], messages: list[Message]) -> None:
    turns = FakeTurns()
    await ask(turns, **fields)
    assert list(turns.last.input) == messages
    async with edge_client(turns) as client:
        counted = await client.post(COUNT, json={"model": MODEL, "messages": HI, **fields})
    assert counted.status_code == 200
    assert turns.counted[-1].input == turns.last.input


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (BILLING, ""),
        (f"{BILLING}\n\nrest", "rest"),
        (f"\n{BILLING}\nx-anthropic-other: 1\nrest\n{BILLING}", f"rest\n{BILLING}"),
        ("x-anthropic- is a prefix", "x-anthropic- is a prefix"),
        ("about x-anthropic-billing-header: 1", "about x-anthropic-billing-header: 1"),
    ],
)
def test_only_leading_client_lines_are_removed(text: str, kept: str) -> None:
    assert without_client_lines(text) == kept


async def test_what_has_no_effect_is_named() -> None:
    fields: dict[str, Any] = {
        "thinking": {"type": "adaptive", "display": "hinted"},
        "context_management": {"edits": []},
        "output_config": {"effort": "high", "task_budget": {}},
        "inference_geo": "eu",
        "diagnostics": {"previous_message_id": None},
        "metadata": {"user_id": "u"},
        "system": BILLING,
        "service_tier": "auto",
        "tool_choice": {"type": "auto"},
    }
    async with edge_client(FakeTurns()) as client:
        body = {"model": MODEL, "max_tokens": 8, "messages": HI, **fields}
        got = await client.post(PATH, json=body)
        counted = await client.post(COUNT, json=body)
    names = got.headers["x-warmlane-warnings"].split(", ")
    assert names == ["context_management", "inference_geo", "thinking.display", "output_config.task_budget"]
    assert got.headers["x-warmlane-canonicalized"] == "system[0]: x-anthropic line removed"
    for header in ("x-warmlane-warnings", "x-warmlane-canonicalized"):
        assert counted.headers[header] == got.headers[header]


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"thinking": {"type": "adaptive", "depth": 3}}, "thinking.depth"),
        ({"thinking": {"type": "disabled", "budget_tokens": 2000}}, "thinking.budget_tokens"),
        ({"diagnostics": {"trace": True}}, "diagnostics.trace"),
    ],
)
async def test_what_has_no_effect_within_an_option_is_named(fields: dict[str, Any], named: str) -> None:
    got = await edge_client(FakeTurns()).post(PATH, json={"model": MODEL, "max_tokens": 8, "messages": HI, **fields})
    assert got.headers["x-warmlane-warnings"] == named


async def test_client_lines_can_be_left_alone() -> None:
    turns = FakeTurns()
    async with edge_client(turns, settings=EdgeSettings(canonicalize=False)) as client:
        got = await client.post(PATH, json={"model": MODEL, "max_tokens": 8, "messages": HI, "system": BILLING})
    assert "x-warmlane-canonicalized" not in got.headers
    assert turns.last.input[0] == Message(SYSTEM, (Text(BILLING),))


@pytest.mark.parametrize(
    ("fields", "thinking"),
    [
        ({}, Thinking(enabled=False)),
        ({"thinking": None}, Thinking(enabled=False)),
        ({"thinking": {"type": "disabled"}}, Thinking(enabled=False)),
        ({"thinking": {"type": "enabled"}}, Thinking(enabled=True)),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, Thinking(enabled=True, budget_tokens=1024)),
        ({"thinking": {"type": "enabled", "budget_tokens": 5}}, Thinking(enabled=True, budget_tokens=5)),
        ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}}, Thinking(effort="max")),
        ({"thinking": {"type": "between_tools"}}, Thinking()),
        ({"output_config": {"effort": "low"}}, Thinking(enabled=False, effort="low")),
    ],
)
async def test_thinking(fields: dict[str, Any], thinking: Thinking) -> None:
    turns = FakeTurns()
    await ask(turns, **fields)
    assert turns.last.thinking == thinking


SCHEMA = {"type": "object", "properties": {"why": {"type": "string"}, "answer": {"type": "string"}}}
FORMAT = {"type": "json_schema", "schema": SCHEMA}


@pytest.mark.parametrize("fields", [{"output_config": {"format": FORMAT}}, {"output_format": FORMAT}])
async def test_structured_output(fields: dict[str, Any]) -> None:
    turns = FakeTurns()
    await ask(turns, **fields)
    assert turns.last.text_format == TextFormat(schema=json.dumps(SCHEMA, separators=(",", ":")), strict=True)


async def test_an_alias_is_answered_by_the_model_it_stands_for() -> None:
    turns = FakeTurns()
    body = {"model": "claude-opus-5", "max_tokens": 8, "messages": HI}
    async with edge_client(turns, host=FakeHost(aliases={"claude-opus-5": MODEL})) as client:
        got = await client.post(PATH, json=body)
        counted = await client.post(COUNT, json=body)
    assert (got.status_code, got.json()["model"], turns.last.model) == (200, MODEL, MODEL)
    assert (counted.status_code, turns.counted[-1].model) == (200, MODEL)


async def test_what_the_model_cannot_do_is_told_with_the_answer() -> None:
    said = "thinking.budget_tokens"
    early, late = ([*first, Validated((said,)), *text_turn("x")[1:]] for first in ([], [Loading()]))
    body = {"model": MODEL, "max_tokens": 8, "messages": HI, "stream": True}
    async with edge_client(FakeTurns(early)) as client:
        assert (await client.post(PATH, json=body)).headers["x-warmlane-warnings"] == said
    assert (await stream(FakeTurns(late)))[-1]["warmlane"]["warnings"] == [said]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": "8"}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": None}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [5]}, "messages[0]"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "user", "content": [THOUGHT]}]}, "messages[0].content[0].type"),
        (
            {"messages": [*HI, {"role": "user", "content": [BLANK, RESULT]}]},
            "messages[1].content[1].tool_use_id",
        ),
        ({"system": 5}, "system"),
        ({"system": [{"type": "image"}]}, "system[0].type"),
        ({"temperature": 2.5}, "temperature"),
        ({"top_k": -1}, "top_k"),
        ({"stop_sequences": [""]}, "stop_sequences[0]"),
        ({"stop_sequences": [5]}, "stop_sequences[0]"),
        ({"stop_sequences": ["x"] * 40}, "stop_sequences"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema"),
        ({"output_config": {"format": {"type": "xml"}}}, "output_config.format.type"),
        ({"output_config": {"effort": "much"}}, "output_config.effort"),
        ({"output_format": {"type": "json_schema", "schema": 5}}, "output_format.schema"),
        ({"cache_control": {"type": "ephemeral", "ttl": "2h"}}, "cache_control.ttl"),
        ({"cache_control": {"type": "eternal"}}, "cache_control.type"),
        (
            {"system": [{"type": "text", "text": "s", "cache_control": {"type": "eternal"}}]},
            "system[0].cache_control.type",
        ),
        ({"thinking": {"type": "enabled", "budget_tokens": 0}}, "thinking.budget_tokens"),
        ({"mcp_servers": [{}]}, "mcp_servers"),
        ({"compaction": {"type": "summary"}}, "compaction"),
        ({"thinking": {"type": "maybe"}}, "thinking.type"),
        ({"cache_salt": "x" * 257}, "cache_salt"),
        ({"seed": 0}, "seed"),
        ({"stop": ["x"]}, "stop"),
        ({"instructions": "be brief"}, "instructions"),
    ],
)
async def test_a_wrong_or_unsupported_field_is_named(fields: dict[str, Any], param: str) -> None:
    turns = FakeTurns()
    async with edge_client(turns) as client:
        got = await client.post(PATH, json={"model": MODEL, "max_tokens": 8, "messages": HI, **fields})
    assert got.status_code == 400, got.text
    assert got.json()["error"]["type"] == "invalid_request_error"
    assert f"'{param}'" in got.json()["error"]["message"]
    assert (turns.open_permits, turns.requests) == (0, [])


@pytest.mark.parametrize("thread", [{"type": "create"}, {"type": "continue", "previous_message_id": "msg_1"}])
async def test_a_client_that_wants_its_dialogue_held_is_told_in_its_own_terms(thread: object) -> None:
    """The vendor's SDK reads the details, and sends the whole dialogue."""
    async with edge_client(FakeTurns()) as client:
        got = await client.post(PATH, json={"model": MODEL, "max_tokens": 8, "messages": HI, "thread": thread})
    assert got.status_code == 400
    ThreadUnsupportedRequestErrorDetails.model_validate(got.json()["error"]["details"])


async def test_counting_needs_no_max_tokens_and_no_permit() -> None:
    turns = FakeTurns(token_count=77)
    async with edge_client(turns) as client:
        got = await client.post(COUNT, json={"model": MODEL, "messages": HI})
    assert MessageTokensCount.model_validate(got.json()).input_tokens == 77
    assert turns.permits == []


async def test_a_stream_of_text() -> None:
    events = await stream(FakeTurns())
    kinds = [event["type"] for event in events]
    assert kinds == [
        "ping",
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    started = events[1]["message"]["usage"]
    assert (started["input_tokens"], started["cache_read_input_tokens"], started["output_tokens"]) == (7, 5, 1)
    assert events[-2]["usage"] == {
        "input_tokens": 7,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 5,
        "output_tokens": 3,
        "output_tokens_details": {"thinking_tokens": 0},
    }
    assert events[-1]["warmlane"] == {"session_cache": "hit", "cached_tokens": 5, "cache_miss_reason": "hit"}


async def test_a_stream_of_everything_equals_the_whole_answer() -> None:
    events = await stream(FakeTurns(rich_turn()))
    whole = await ask(FakeTurns(rich_turn()))
    assert [block["type"] for block in whole["content"]] == ["thinking", "text", "tool_use", "tool_use"]
    starts = [event["content_block"]["type"] for event in events if event["type"] == "content_block_start"]
    assert starts == [block["type"] for block in whole["content"]]
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    assert deltas[2] == {"type": "signature_delta", "signature": whole["content"][0]["signature"]}
    assert whole["content"][2]["input"] == {"city": "Bern"}
    for used in (whole["usage"], events[-2]["usage"]):
        assert used["output_tokens_details"] == {"thinking_tokens": 2}
    assert whole["stop_reason"] == events[-2]["delta"]["stop_reason"] == "tool_use"


@pytest.mark.parametrize(
    ("reason", "sequence", "expected"),
    [
        (StopReason.LENGTH, None, "max_tokens"),
        (StopReason.STOP_SEQUENCE, "END", "stop_sequence"),
        (StopReason.STOP, None, "end_turn"),
    ],
)
async def test_stop_reasons(reason: StopReason, sequence: str | None, expected: str) -> None:
    script = text_turn("x", stop_reason=reason, stop_sequence=sequence)
    whole, events = await ask(FakeTurns(script)), await stream(FakeTurns(script))
    for told in (whole, events[-2]["delta"]):
        assert (told["stop_reason"], told["stop_sequence"]) == (expected, sequence)


async def test_an_empty_reply_is_a_valid_message() -> None:
    for script in (text_turn(), text_turn("")):
        assert (await ask(FakeTurns(script)))["content"] == []
        assert [event["type"] for event in await stream(FakeTurns(script))] == [
            "ping",
            "message_start",
            "message_delta",
            "message_stop",
        ]
