"""Responses: reasoning and its encrypted content, structured output, log probabilities, truncation."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import structs
from openai.types.responses import Response
from openresponses_types.types import ResponseResource

from support.edge import check_responses, edge_client, sse_events
from support.fake_turns import MODEL, FakeHost, FakeTurns, outcome, rich_turn
from warmlane.api.responses.drafts import output_items
from warmlane.conversation.events import Finished, TextDelta, Validated
from warmlane.conversation.messages import Message, Reasoning, Role, Sampled, Text, ToolCall
from warmlane.conversation.tools import TextFormat, Thinking, TokenLogprob, TopLogprob
from warmlane.conversation.turn import TurnRequest
from warmlane.host.view import ModelCard

PATH = "/v1/responses"
ENCRYPTED = {"include": ["reasoning.encrypted_content"]}
SAMPLED = Sampled((1, 2, 70_000), "<think>let me see</think>I'll look.", "tokenizer")


async def answered(turns: FakeTurns, **fields: Any) -> tuple[dict[str, Any], str]:
    async with edge_client(turns) as client:
        got = await client.post(PATH, json={"model": MODEL, "input": "hi", **fields})
    assert got.status_code == 200, got.text
    Response.model_validate(got.json())
    return got.json(), got.headers.get("x-warmlane-warnings", "")


async def streamed(turns: FakeTurns, **fields: Any) -> list[dict[str, Any]]:
    async with edge_client(turns) as client:
        got = await client.post(PATH, json={"model": MODEL, "input": "hi", "stream": True, **fields})
    events = sse_events(got.content, named=True)
    check_responses(events)
    return events


@pytest.mark.parametrize(
    ("asked", "thinking", "echo"),
    [
        (None, Thinking(), {"effort": None, "summary": None}),
        ({}, Thinking(), {"effort": None, "summary": None}),
        ({"summary": "auto"}, Thinking(), {"effort": None, "summary": "auto"}),
        ({"effort": "none"}, Thinking(enabled=False), {"effort": "none", "summary": None}),
        (
            {"effort": "low", "generate_summary": "detailed"},
            Thinking(enabled=True, effort="low"),
            {"effort": "low", "summary": "detailed"},
        ),
    ],
)
async def test_whether_to_think(asked: object, thinking: Thinking, echo: dict[str, Any]) -> None:
    turns = FakeTurns()
    body, warnings = await answered(turns, reasoning=asked)
    assert turns.last.thinking == thinking
    assert body["reasoning"] == echo
    assert warnings == ""
    ResponseResource.model_validate(body)


def thoughtful() -> FakeTurns:
    turns = FakeTurns(rich_turn())
    end = turns.script[-1]
    assert isinstance(end, Finished)
    message = Message(Role.ASSISTANT, end.outcome.message.parts, SAMPLED)
    turns.script = [*turns.script[:-1], Finished(structs.replace(end.outcome, message=message))]
    return turns


async def test_reasoning_comes_back_with_the_tokens_of_its_reply() -> None:
    turns = thoughtful()
    body, _ = await answered(turns, store=False, **ENCRYPTED)
    assert body["output"][0]["encrypted_content"].isascii()
    assert "let me" not in body["output"][0]["encrypted_content"]
    replayed = [{**body["output"][0], "summary": [], "content": None}, *body["output"][1:]]
    _, warnings = await answered(turns, input=[{"role": "user", "content": "hi"}, *replayed])
    assert warnings == ""
    assert turns.last.input[1] == Message(
        Role.ASSISTANT,
        (
            Reasoning("let me see"),
            Text("I'll look."),
            ToolCall("call_a", "get_weather", '{"city":"Bern"}'),
            ToolCall("call_b", "get_time", "{}"),
        ),
        SAMPLED,
    )


async def test_streamed_reasoning_is_sealed_before_the_reply_has_ended() -> None:
    turns = thoughtful()
    events = await streamed(turns, **ENCRYPTED)
    item = events[-1]["response"]["output"][0]
    await answered(turns, input=[{**item, "summary": []}, {"role": "user", "content": "more"}])
    assert turns.last.input[0] == Message(Role.ASSISTANT, (Reasoning("let me see"),))


async def test_nothing_is_sealed_unasked() -> None:
    body, _ = await answered(thoughtful())
    assert "encrypted_content" not in body["output"][0]


@pytest.mark.parametrize("blob", ["gAAAAforeign", "", 5, {"a": 1}])
async def test_foreign_blobs_are_named_and_the_summary_counts(blob: object) -> None:
    turns = FakeTurns()
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": blob}
    _, warnings = await answered(turns, input=[thought, {"role": "user", "content": "hi"}])
    assert warnings == "input[0].encrypted_content"
    assert turns.last.input[0] == Message(Role.ASSISTANT, (Reasoning("hm"),))


async def test_a_blob_opens_for_its_own_salt_alone() -> None:
    turns = thoughtful()
    body, _ = await answered(turns, cache_salt="a", **ENCRYPTED)
    replay = [{**body["output"][0], "summary": []}, {"role": "user", "content": "more"}]
    _, same = await answered(turns, input=replay, cache_salt="a")
    _, other = await answered(turns, input=replay, cache_salt="b")
    assert (same, other) == ("", "input[0].encrypted_content")
    assert [message.role for message in turns.last.input] == [Role.USER]


SCHEMA = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}


@pytest.mark.parametrize(
    ("asked", "wanted", "echo"),
    [
        (None, None, {"type": "text"}),
        ({"type": "text"}, None, {"type": "text"}),
        ({"type": "json_object"}, TextFormat(), {"type": "json_object"}),
        (
            {"type": "json_schema", "name": "a", "schema": SCHEMA, "strict": True, "description": "d"},
            TextFormat(schema=json.dumps(SCHEMA, separators=(",", ":")), name="a", strict=True),
            {"type": "json_schema", "name": "a", "schema": SCHEMA, "strict": True, "description": "d"},
        ),
        (
            {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}},
            TextFormat(schema=json.dumps(SCHEMA, separators=(",", ":")), name="a"),
            {"type": "json_schema", "name": "a", "schema": SCHEMA, "strict": False, "description": None},
        ),
    ],
)
async def test_the_form_of_the_text(asked: object, wanted: TextFormat | None, echo: dict[str, Any]) -> None:
    turns = FakeTurns()
    body, _ = await answered(turns, text={"format": asked})
    assert turns.last.text_format == wanted
    assert body["text"] == {"format": echo}


def logprob(token: str) -> TokenLogprob:
    return TokenLogprob(token, -0.5, token.encode(), (TopLogprob("x", -1.5, b"x"),))


def wire(*tokens: str) -> list[dict[str, Any]]:
    top = [{"token": "x", "logprob": -1.5, "bytes": [120]}]
    return [{"token": t, "logprob": -0.5, "bytes": list(t.encode()), "top_logprobs": top} for t in tokens]


@pytest.mark.parametrize(
    ("fields", "n"),
    [
        ({}, None),
        ({"top_logprobs": 0}, None),
        ({"top_logprobs": 3}, 3),
        ({"include": ["message.output_text.logprobs"]}, 0),
        ({"include": ["message.output_text.logprobs"], "top_logprobs": 2}, 2),
    ],
)
async def test_asking_for_log_probabilities(fields: dict[str, Any], n: int | None) -> None:
    turns = FakeTurns()
    body, warnings = await answered(turns, **fields)
    assert turns.last.top_logprobs == n
    assert (body["top_logprobs"], warnings) == (fields.get("top_logprobs", 0), "")


async def test_log_probabilities_on_every_event_and_part() -> None:
    told = tuple(map(logprob, ("a", "b", "é")))
    end = structs.replace(outcome(Text("abé")), logprobs=told)
    script = [Validated(), TextDelta("ab", told[:2]), TextDelta("é", told[2:]), Finished(end)]
    events = await streamed(FakeTurns(script), top_logprobs=1)
    by_type = {event["type"]: event for event in events}
    assert [e["logprobs"] for e in events if e["type"] == "response.output_text.delta"] == [wire("a", "b"), wire("é")]
    assert by_type["response.output_text.done"]["logprobs"] == wire("a", "b", "é")
    assert by_type["response.content_part.done"]["part"]["logprobs"] == wire("a", "b", "é")
    ResponseResource.model_validate(events[-1]["response"])
    whole, _ = await answered(FakeTurns(script), top_logprobs=1)
    assert whole["output"][0]["content"][0] == events[-1]["response"]["output"][0]["content"][0]


def test_two_texts_share_the_log_probabilities_by_their_bytes() -> None:
    message = Message(Role.ASSISTANT, (Text("éa"), ToolCall("c", "f", "{}"), Text("bc")))
    items = output_items("resp_00", message, logprobs=tuple(map(logprob, ("é", "a", "b", "c"))))
    texts = [item.content[0] for item in items if item.__struct_config__.tag == "message"]  # type: ignore[union-attr]
    assert [[each.token for each in text.logprobs] for text in texts] == [["é", "a"], ["b", "c"]]


class CountedByItems(FakeTurns):
    """A prompt has a hundred tokens a message."""

    async def count_tokens(self, request: TurnRequest) -> int:
        await super().count_tokens(request)
        return 100 * len(request.input)


def dialogue(n: int) -> list[dict[str, Any]]:
    roles = ("user", "assistant")
    return [{"role": roles[k % 2], "content": f"message {k:03}"} for k in range(n)]


async def test_an_input_that_is_too_long_loses_its_oldest_items_if_it_may() -> None:
    turns = CountedByItems()
    host = FakeHost(cards=[ModelCard(MODEL, 0, 1000)])
    async with edge_client(turns, host=host) as client:
        body = {"model": MODEL, "input": [{"role": "system", "content": "be brief"}, *dialogue(20)]}
        got = await client.post(PATH, json={**body, "truncation": "auto"})
        assert got.json()["truncation"] == "auto"
        assert [message.text for message in turns.last.input] == [
            "be brief",
            *(f"message {k:03}" for k in range(20 - len(turns.last.input) + 1, 20)),
        ]
        assert len(turns.last.input) in (7, 8)
        assert got.headers["x-warmlane-warnings"] == f"input (its {21 - len(turns.last.input)} oldest items)"
        assert (await client.post(PATH, json=body)).json()["truncation"] == "disabled"
    assert len(turns.last.input) == 21


@pytest.mark.parametrize("n_tokens", [600, 1100])
async def test_what_the_last_result_answers_stays_however_long_it_is(n_tokens: int) -> None:
    """Without the call there would be nothing to answer, and no word of what was too long."""

    class LongResult(FakeTurns):
        async def count_tokens(self, request: TurnRequest) -> int:
            await super().count_tokens(request)
            return n_tokens * len(request.input)

    turns = LongResult()
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c", "output": "x"}
    async with edge_client(turns, host=FakeHost(cards=[ModelCard(MODEL, 0, 1000)])) as client:
        body = {"model": MODEL, "input": [*dialogue(3), call, result], "truncation": "auto"}
        assert (await client.post(PATH, json=body)).status_code == 200
    assert [message.role for message in turns.last.input] == [Role.ASSISTANT, Role.TOOL]


async def test_a_result_goes_with_its_call_and_one_that_answers_the_previous_response_stays() -> None:
    turns = CountedByItems()
    call = {"type": "function_call", "call_id": "old", "name": "f", "arguments": "{}"}
    result = {"type": "function_call_output", "output": "x"}
    items = [{**result, "call_id": "before"}, call, {**result, "call_id": "old"}, *dialogue(8)]
    async with edge_client(turns, host=FakeHost(cards=[ModelCard(MODEL, 0, 1100)])) as client:
        await client.post(PATH, json={"model": MODEL, "input": items, "truncation": "auto"})
        assert [m.role for m in turns.last.input if m.role is Role.TOOL] == []
        assert len(turns.last.input) <= 9
        fits = {"model": MODEL, "input": items[:3], "truncation": "auto", "previous_response_id": "resp_1"}
        await client.post(PATH, json=fits)
    assert len(turns.last.input) == 3
