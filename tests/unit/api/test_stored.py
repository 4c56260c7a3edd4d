"""Retrieving, deleting and listing responses at the edge."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
from openai.types.responses import InputTokenCountResponse, Response, ResponseItemList

from support.edge import edge_client
from support.fake_turns import MODEL, FakeArchive, FakeTurns, outcome
from warmlane.api.auth import ApiKey, KeyRing
from warmlane.api.responses.render import ResponseFacts
from warmlane.api.settings import EdgeSettings
from warmlane.conversation.messages import Message, Reasoning, Role, Text, ToolCall, ToolResult
from warmlane.turns.archive import Archived

FACTS = ResponseFacts(id="resp_1", created_at=10, model=MODEL, instructions="be brief", metadata={"a": "b"})
SAID = (
    Message(Role.SYSTEM, (Text("be kind"),)),
    Message(Role.USER, (Text("one"),)),
    Message(Role.ASSISTANT, (Reasoning("hm"), Text("two"), ToolCall("call_1", "f", "{}"))),
    Message(Role.TOOL, (ToolResult("call_1", "three"),)),
    Message(Role.DEVELOPER, (Text("be brief"),)),
)
ANN, BOB = ({"authorization": f"Bearer key-{name}"} for name in "ab")


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    row = Archived("resp_1", FACTS.echo(), outcome(Text("hello")), 12.7, (SAID[-1],))
    archive = FakeArchive(rows={("ann", "resp_1"): row}, said=SAID)
    settings = EdgeSettings(keys=KeyRing([ApiKey("key-a", "ann"), ApiKey("key-b", "bob")]))
    async with edge_client(FakeTurns(), archive=archive, settings=settings) as made:
        yield made


async def test_a_response_is_retrieved_as_it_was_answered(client: httpx.AsyncClient) -> None:
    body = (await client.get("/v1/responses/resp_1", headers=ANN)).json()
    answer = Response.model_validate(body)
    assert (answer.output_text, answer.instructions, answer.metadata) == ("hello", "be brief", {"a": "b"})
    assert (answer.created_at, answer.completed_at) == (10, 12)


async def test_a_retrieve_names_what_it_does_not_include(client: httpx.AsyncClient) -> None:
    got = await client.get("/v1/responses/resp_1?include[]=reasoning.encrypted_content", headers=ANN)
    assert got.headers["x-warmlane-warnings"] == "include[]"


async def test_a_deleted_response_is_gone(client: httpx.AsyncClient) -> None:
    deleted = await client.delete("/v1/responses/resp_1", headers=ANN)
    assert deleted.json() == {"id": "resp_1", "object": "response", "deleted": True}
    assert (await client.get("/v1/responses/resp_1", headers=ANN)).status_code == 404


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/v1/responses/{}"), ("DELETE", "/v1/responses/{}"), ("GET", "/v1/responses/{}/input_items")],
)
async def test_a_foreign_id_is_answered_like_an_unknown_one(client: httpx.AsyncClient, method: str, path: str) -> None:
    foreign = await client.request(method, path.format("resp_1"), headers=BOB)
    unknown = await client.request(method, path.format("resp_9"), headers=BOB)
    assert foreign.status_code == unknown.status_code == 404
    assert foreign.text == unknown.text.replace("resp_9", "resp_1")


async def test_every_kind_of_input_item_has_the_vendors_type(client: httpx.AsyncClient) -> None:
    body = (await client.get("/v1/responses/resp_1/input_items?order=asc", headers=ANN)).json()
    page = ResponseItemList.model_validate(body)
    kinds = ["message", "message", "reasoning", "message", "function_call", "function_call_output", "message"]
    assert [item["type"] for item in body["data"]] == kinds
    assert (page.has_more, page.first_id, page.last_id) == (False, body["data"][0]["id"], body["data"][-1]["id"])
    assert len({item["id"] for item in body["data"]}) == len(kinds)


async def test_items_come_in_pages_newest_first(client: httpx.AsyncClient) -> None:
    path = "/v1/responses/resp_1/input_items"
    whole = [i["id"] for i in (await client.get(path, headers=ANN)).json()["data"]]
    seen: list[str] = []
    query = "?limit=3"
    while True:
        body = (await client.get(path + query, headers=ANN)).json()
        seen += [item["id"] for item in body["data"]]
        if not body["has_more"]:
            break
        query = f"?limit=3&after={body['last_id']}"
    assert seen == whole


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "limit=x", "order=up", "after=msg_none"])
async def test_a_bad_page_is_a_400_that_names_the_parameter(client: httpx.AsyncClient, query: str) -> None:
    refused = await client.get(f"/v1/responses/resp_1/input_items?{query}", headers=ANN)
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == query.partition("=")[0]


async def test_streaming_a_stored_response_is_refused(client: httpx.AsyncClient) -> None:
    refused = await client.get("/v1/responses/resp_1?stream=true", headers=ANN)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "stream")


async def test_input_tokens_are_counted_without_a_permit() -> None:
    turns = FakeTurns()
    async with edge_client(turns) as client:
        answer = await client.post("/v1/responses/input_tokens", json={"model": MODEL, "input": "hello"})
    assert InputTokenCountResponse.model_validate(answer.json()).input_tokens > 0
    assert turns.permits == []
