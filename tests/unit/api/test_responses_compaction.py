"""Compaction, and items that are named instead of sent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from msgspec import structs
from openresponses_types.types import CompactionBody

from support.edge import check_responses, edge_client, sse_events
from support.fake_turns import MODEL, FakeArchive, FakeHost, FakeTurns, outcome, text_turn
from warmlane.api.responses.compaction import INSTRUCTION, SUMMARY_MAX_TOKENS
from warmlane.api.responses.input import SUMMARY_OPENING
from warmlane.api.responses.references import MAX_NAMED
from warmlane.api.responses.render import ResponseFacts
from warmlane.api.settings import EdgeSettings
from warmlane.conversation.messages import Message, Reasoning, Role, Sampled, Text, ToolCall, ToolResult
from warmlane.conversation.tools import Thinking, ToolMode
from warmlane.conversation.turn import StopReason, TurnRequest
from warmlane.host.view import ModelCard
from warmlane.turns.archive import Archived

PATH = "/v1/responses/compact"
TOOL = {"type": "function", "name": "f"}
CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "c", "output": "found"}
DIALOGUE = [
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": "one"},
    {"role": "assistant", "content": "I look."},
    CALL,
    RESULT,
    {"role": "assistant", "content": "It is there."},
    {"role": "user", "content": "two"},
]


async def post(client: httpx.AsyncClient, path: str, **fields: Any) -> dict[str, Any]:
    got = await client.post(path, json={"model": MODEL, **fields})
    assert got.status_code == 200, got.text
    body: dict[str, Any] = got.json()
    return body


async def test_a_dialogue_becomes_its_user_messages_and_a_summary() -> None:
    turns = FakeTurns(text_turn("They look for it."))
    async with edge_client(turns) as client:
        body = await post(client, PATH, input=DIALOGUE, instructions="i", tools=[TOOL], max_output_tokens=9000)
        await turns.settle()
        request = turns.last
        assert (body["object"], body["usage"]["output_tokens"]) == ("response.compaction", 3)
        assert [item["type"] for item in body["output"]] == ["message", "message", "compaction"]
        assert [item["content"][0]["text"] for item in body["output"][:2]] == ["one", "two"]
        CompactionBody.model_validate(body["output"][2])
        assert "look" not in body["output"][2]["encrypted_content"]
        assert len(request.input) == 7
        assert request.input[-1] == Message(Role.USER, (Text(INSTRUCTION),))
        assert (request.instructions, request.tool_choice.mode, request.tools[0].name) == ("i", ToolMode.NONE, "f")
        assert (request.store, request.max_output_tokens) == (False, SUMMARY_MAX_TOKENS)
        assert request.thinking == Thinking(enabled=False)
        assert turns.accepted == [False]
        await post(client, "/v1/responses", input=[*body["output"], {"role": "user", "content": "three"}])
    assert [message.text for message in turns.last.input] == [
        "one",
        "two",
        f"{SUMMARY_OPENING}They look for it.",
        "three",
    ]


async def test_open_calls_are_kept_for_their_results() -> None:
    turns = FakeTurns()
    async with edge_client(turns) as client:
        items = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "I look."}, CALL]
        body = await post(client, PATH, input=items)
        assert turns.last.input[1] == Message(Role.ASSISTANT, (Text("I look."),))
        assert [item["type"] for item in body["output"]] == ["message", "compaction", "function_call"]
        await post(client, "/v1/responses", input=[*body["output"], RESULT])
    assert turns.last.input[-2:] == (
        Message(Role.ASSISTANT, (ToolCall("c", "f", "{}"),)),
        Message(Role.TOOL, (ToolResult("c", "found"),)),
    )


async def test_a_second_compaction_takes_up_the_first() -> None:
    async with edge_client(FakeTurns()) as client:
        first = await post(client, PATH, input="one")
        second = await post(client, PATH, input=[*first["output"], {"role": "user", "content": "two"}])
    assert [item["type"] for item in second["output"]] == ["message", "message", "compaction"]


async def test_a_response_that_is_not_stored_may_be_compacted_by_its_id() -> None:
    turns = FakeTurns()
    async with edge_client(turns) as client:
        body = await post(client, PATH, previous_response_id="resp_1")
    assert [item["type"] for item in body["output"]] == ["compaction"]
    assert turns.last.previous_response_id == "resp_1"


@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [
        ({"input": "hi"}, 400, "model"),
        ({"model": "gpt-9", "input": "hi"}, 404, "model"),
        ({"model": MODEL}, 400, "input"),
        ({"model": MODEL, "input": []}, 400, "input"),
        ({"model": MODEL, "input": 5}, 400, "input"),
    ],
)
async def test_what_cannot_be_compacted(fields: dict[str, Any], status: int, param: str) -> None:
    turns = FakeTurns()
    async with edge_client(turns) as client:
        got = await client.post(PATH, json=fields)
    assert (got.status_code, got.json()["error"]["param"]) == (status, param)
    assert turns.open_permits == 0


async def test_a_model_that_writes_no_summary_is_at_fault() -> None:
    async with edge_client(FakeTurns(text_turn(" "))) as client:
        assert (await client.post(PATH, json={"model": MODEL, "input": "hi"})).status_code == 500
        item = {"type": "compaction_trigger"}
        body = {"model": MODEL, "stream": True, "input": [{"role": "user", "content": "hi"}, item]}
        events = sse_events((await client.post("/v1/responses", json=body)).content, named=True)
    assert [event["type"] for event in events[-2:]] == ["error", "response.failed"]


@pytest.mark.parametrize("blob", [None, "foreign", 5])
async def test_a_summary_that_does_not_open_is_refused(blob: object) -> None:
    async with edge_client(FakeTurns()) as client:
        items = [{"type": "compaction", "encrypted_content": blob}, {"role": "user", "content": "hi"}]
        got = await client.post("/v1/responses", json={"model": MODEL, "input": items})
    assert (got.status_code, got.json()["error"]["param"]) == (400, "input[0].encrypted_content")


class CountedByItems(FakeTurns):
    async def count_tokens(self, request: TurnRequest) -> int:
        return 100 * len(request.input)


async def test_a_dialogue_that_fills_the_window_can_still_be_compacted() -> None:
    turns = CountedByItems()
    host = FakeHost(cards=[ModelCard(MODEL, 0, 1000)])
    dialogue = [{"role": "user", "content": f"message {n:03}"} for n in range(30)]
    async with edge_client(turns, host=host) as client:
        got = await client.post(PATH, json={"model": MODEL, "input": dialogue})
    assert len(turns.last.input) <= 8
    assert turns.last.input[-2].text == "message 029"
    assert got.headers["x-warmlane-warnings"].startswith("input (its ")


async def test_what_is_no_call_id_names_no_call() -> None:
    turns = CountedByItems()
    host = FakeHost(cards=[ModelCard(MODEL, 0, 1000)])
    dialogue = [{"role": "user", "content": f"message {n:03}", "call_id": [n]} for n in range(30)]
    async with edge_client(turns, host=host) as client:
        await post(client, PATH, input=dialogue)
        await post(client, "/v1/responses", input=dialogue, truncation="auto")
    assert len(turns.last.input) <= 8


async def test_a_trigger_makes_the_compaction_the_response() -> None:
    turns = FakeTurns(text_turn("They ", "look.", stop_reason=StopReason.LENGTH))
    body = {
        "model": MODEL,
        "store": False,
        "input": [{"role": "user", "content": "hi"}, {"type": "compaction_trigger"}],
    }
    async with edge_client(turns) as client:
        whole = (await client.post("/v1/responses", json=body)).json()
        got = await client.post("/v1/responses", json={**body, "stream": True})
        events = sse_events(got.content, named=True)
        check_responses(events)
        await turns.settle()
        assert turns.accepted == [False, False]
        for response in (whole, events[-1]["response"]):
            assert (response["status"], response["store"]) == ("completed", False)
            assert [item["type"] for item in response["output"]] == ["compaction"]
        await post(client, "/v1/responses", input=[*whole["output"], {"role": "user", "content": "on"}])
    assert turns.last.input[0].text == f"{SUMMARY_OPENING}They look."


DIGITS = f"{7:048x}"
FACTS = ResponseFacts(id=f"resp_{DIGITS}", created_at=1, model=MODEL)
REPLY = Message(
    Role.ASSISTANT,
    (Reasoning("hm"), Text("I look."), ToolCall("c", "f", "{}")),
    Sampled((1, 2), "hm I look.", "tokenizer"),
)


@pytest.fixture
async def stored() -> AsyncIterator[tuple[httpx.AsyncClient, FakeTurns]]:
    turns = FakeTurns()
    row = Archived(FACTS.id, FACTS.echo(), structs.replace(outcome(), message=REPLY), 1.0, ())
    archive = FakeArchive(rows={("", FACTS.id): row}, said=(Message(Role.USER, (Text("asked"),)),))
    async with edge_client(turns, archive=archive) as client:
        yield client, turns


async def test_items_may_be_named_instead_of_sent(stored: tuple[httpx.AsyncClient, FakeTurns]) -> None:
    client, turns = stored
    items: list[dict[str, Any]] = [
        {"type": "item_reference", "id": f"msg_{DIGITS}in0000"},
        {"id": f"rs_{DIGITS}0000"},
        {"type": "item_reference", "id": f"msg_{DIGITS}0001"},
        {"type": None, "id": f"fc_{DIGITS}0002"},
        RESULT,
    ]
    await post(client, "/v1/responses", input=items)
    assert turns.last.input == (
        Message(Role.USER, (Text("asked"),)),
        REPLY,
        Message(Role.TOOL, (ToolResult("c", "found"),)),
    )


@pytest.mark.parametrize(
    "name", ["", "x", f"msg_{DIGITS}0009", f"fc_{DIGITS}0001", f"msg_{8:048x}0001", f"msg_{DIGITS}in0009", "msg_in0000"]
)
async def test_a_name_of_nothing_is_refused(stored: tuple[httpx.AsyncClient, FakeTurns], name: str) -> None:
    client, turns = stored
    items = [{"role": "user", "content": "hi"}, {"type": "item_reference", "id": name}]
    got = await client.post("/v1/responses", json={"model": MODEL, "input": items})
    assert (got.status_code, got.json()["error"]["param"]) == (400, "input[1].id")
    assert turns.open_permits == 0


async def test_a_compaction_by_id_keeps_the_users_messages_and_open_calls(
    stored: tuple[httpx.AsyncClient, FakeTurns],
) -> None:
    client, turns = stored
    body = await post(client, PATH, previous_response_id=FACTS.id, input="and more")
    assert [item["type"] for item in body["output"]] == ["message", "message", "compaction", "function_call"]
    assert [item["content"][0]["text"] for item in body["output"][:2]] == ["asked", "and more"]
    assert body["output"][3]["call_id"] == "c"
    request = turns.last
    assert request.previous_response_id is None
    assert [message.text for message in request.input] == ["asked", "I look.", "and more", INSTRUCTION]
    assert request.input[1].parts[0] == Reasoning("hm")


def references(*names: str) -> list[dict[str, str]]:
    return [{"type": "item_reference", "id": name} for name in names]


async def test_what_is_named_counts_as_often_as_it_is_named() -> None:
    said = Message(Role.USER, (Text("x" * 10_000),))
    archive = FakeArchive(rows={("", FACTS.id): Archived(FACTS.id, FACTS.echo(), None, 1.0, ())}, said=(said,))
    turns = FakeTurns()
    async with edge_client(turns, archive=archive, settings=EdgeSettings(max_body_bytes=100_000)) as client:
        name = f"msg_{DIGITS}in0000"
        await post(client, "/v1/responses", input=references(*[name] * 9))
        assert turns.last.input == (said,) * 9
        got = await client.post("/v1/responses", json={"model": MODEL, "input": references(*[name] * 10)})
    assert (got.status_code, got.json()["error"]["code"]) == (413, "request_too_large")
    assert "'input'" in got.json()["error"]["message"]
    assert turns.open_permits == 0


async def test_too_many_names_are_refused(stored: tuple[httpx.AsyncClient, FakeTurns]) -> None:
    client, turns = stored
    items = references(*(f"msg_{DIGITS}in{n:04x}" for n in range(MAX_NAMED + 1)))
    got = await client.post("/v1/responses", json={"model": MODEL, "input": items})
    assert (got.status_code, got.json()["error"]["param"]) == (400, "input")
    assert turns.open_permits == 0
