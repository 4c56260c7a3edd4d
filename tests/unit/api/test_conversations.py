"""Conversation objects at the edge, over a store in memory; answers are read by the vendor's types."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
from openai.types.conversations import Conversation, ConversationDeletedResource, ConversationItemList

from support.edge import UNIX_S, edge_client
from support.fake_turns import MODEL, FakeArchive, FakeTurns, outcome
from warmlane.api.auth import ApiKey, KeyRing
from warmlane.api.responses.render import ResponseFacts
from warmlane.api.settings import EdgeSettings
from warmlane.conversation.kept import Entry
from warmlane.conversation.messages import Message, Reasoning, Role, Sampled, Text, ToolCall
from warmlane.store import ResponseStore, open_store
from warmlane.turns.archive import Archived
from warmlane.turns.conversations import StoredConversations

ANN, BOB = ({"authorization": f"Bearer key-{name}"} for name in "ab")
HELLO = {"type": "message", "role": "user", "content": "hello"}


@pytest.fixture
async def store() -> AsyncIterator[ResponseStore]:
    opened = await open_store("memory:")
    yield opened
    await opened.close()


@pytest.fixture
async def client(store: ResponseStore) -> AsyncIterator[httpx.AsyncClient]:
    settings = EdgeSettings(keys=KeyRing([ApiKey("key-a", "ann"), ApiKey("key-b", "bob")]))
    kept = StoredConversations(store, unix_now=lambda: UNIX_S + 0.5)
    async with edge_client(FakeTurns(), conversations=kept, settings=settings) as made:
        made.headers.update(ANN)
        yield made


async def begin(client: httpx.AsyncClient, *items: object, **fields: object) -> str:
    answer = await client.post("/v1/conversations", json={"items": list(items), **fields})
    assert answer.status_code == 200, answer.text
    return Conversation.model_validate(answer.json()).id


async def items(client: httpx.AsyncClient, name: str, **query: str | int) -> list[dict[str, object]]:
    answer = await client.get(f"/v1/conversations/{name}/items", params={"order": "asc", **query})
    assert answer.status_code == 200, answer.text
    ConversationItemList.model_validate(answer.json())
    return list(answer.json()["data"])


async def test_a_conversation_is_made_changed_and_deleted(client: httpx.AsyncClient) -> None:
    made = (await client.post("/v1/conversations", json={"metadata": {"topic": "a"}})).json()
    assert made == {
        "id": made["id"],
        "object": "conversation",
        "created_at": UNIX_S,
        "metadata": {"topic": "a"},
    }
    path = f"/v1/conversations/{made['id']}"
    assert (await client.get(path)).json() == made
    changed = await client.post(path, json={"metadata": {"topic": "b"}})
    assert changed.json() == made | {"metadata": {"topic": "b"}}
    assert (await client.get(path)).json() == changed.json()

    deleted = ConversationDeletedResource.model_validate((await client.delete(path)).json())
    assert (deleted.id, deleted.deleted) == (made["id"], True)
    assert (await client.get(path)).status_code == 404


async def test_items_are_listed_in_pages_both_ways(client: httpx.AsyncClient) -> None:
    name = await begin(client, *(HELLO | {"content": f"item {n}"} for n in range(5)))
    listed = [item["id"] for item in await items(client, name)]
    assert len(set(listed)) == 5

    newest = (await client.get(f"/v1/conversations/{name}/items", params={"limit": 2})).json()
    assert [item["id"] for item in newest["data"]] == listed[:2:-1]
    assert (newest["first_id"], newest["last_id"], newest["has_more"]) == (listed[4], listed[3], True)
    assert [item["id"] for item in await items(client, name, after=listed[2])] == listed[3:]


async def test_items_are_added_at_the_end(client: httpx.AsyncClient) -> None:
    name = await begin(client, HELLO)
    added = await client.post(
        f"/v1/conversations/{name}/items",
        json={"items": [{"role": "assistant", "content": "hi"}, {"role": "developer", "content": "be brief"}]},
    )
    assert ConversationItemList.model_validate(added.json()).has_more is False
    listed = await items(client, name)
    assert [item["role"] for item in listed] == ["user", "assistant", "developer"]
    assert added.json()["data"] == listed[1:]


async def test_an_item_is_retrieved_and_deleted_alone(client: httpx.AsyncClient) -> None:
    name = await begin(client, HELLO, HELLO | {"content": "again"})
    first, second = await items(client, name)
    path = f"/v1/conversations/{name}/items/{first['id']}"
    assert (await client.get(path)).json() == first

    assert (await client.delete(path)).json()["id"] == name
    assert await items(client, name) == [second]
    assert (await client.get(path)).status_code == (await client.delete(path)).status_code == 404


async def test_a_part_of_a_message_is_deleted_and_the_rest_stays(
    client: httpx.AsyncClient, store: ResponseStore
) -> None:
    name = await begin(client)
    said = Message(Role.ASSISTANT, (Reasoning("hm"), Text("yes"), ToolCall("c", "f", "{}")), Sampled((1,), "x", "t"))
    await store.conversations.add(name, "ann", [Entry("e", said)], now=0.0)
    reasoning, text, call = await items(client, name)
    assert [reasoning["type"], text["type"], call["type"]] == ["reasoning", "message", "function_call"]

    await client.delete(f"/v1/conversations/{name}/items/{reasoning['id']}")

    transcript = await store.conversations.read(name, "ann")
    assert transcript is not None
    assert transcript.messages == (Message(Role.ASSISTANT, said.parts[1:]),)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "", None),
        ("POST", "", {"metadata": {}}),
        ("DELETE", "", None),
        ("GET", "/items", None),
        ("POST", "/items", {"items": [HELLO]}),
        ("GET", "/items/msg_x", None),
        ("DELETE", "/items/msg_x", None),
    ],
)
async def test_a_foreign_conversation_is_answered_like_an_unknown_one(
    client: httpx.AsyncClient, method: str, path: str, body: object
) -> None:
    mine = await begin(client, HELLO)
    foreign = await client.request(method, f"/v1/conversations/{mine}{path}", json=body, headers=BOB)
    unknown = await client.request(method, f"/v1/conversations/conv_9{path}", json=body, headers=BOB)
    assert foreign.status_code == unknown.status_code == 404
    assert foreign.text == unknown.text.replace("conv_9", mine)
    assert len(await items(client, mine)) == 1


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"items": [HELLO] * 21}, "items"),
        ({"items": [HELLO | {"role": "wizard"}]}, "items[0].role"),
        ({"items": [HELLO, {"type": "function_call"}]}, "items[1].call_id"),
        ({"items": "hello"}, "items"),
        ({"metadata": {"a": 1}}, "metadata.a"),
        ({"metadata": {str(n): "" for n in range(17)}}, "metadata"),
    ],
)
async def test_what_cannot_be_kept_is_refused_by_name(
    client: httpx.AsyncClient, body: dict[str, object], param: str
) -> None:
    answer = await client.post("/v1/conversations", json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


async def test_an_unknown_field_is_named(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/conversations", json={"colour": "blue"})
    assert "colour" in answer.headers["x-warmlane-warnings"]


async def test_items_of_a_stored_response_may_be_named(store: ResponseStore) -> None:
    facts = ResponseFacts(id="resp_" + "0" * 40, created_at=1, model=MODEL)
    archive = FakeArchive(rows={("", facts.id): Archived(facts.id, facts.echo(), outcome(Text("Hello")), 1.0, ())})
    kept = StoredConversations(store, unix_now=lambda: UNIX_S + 0.5)
    async with edge_client(FakeTurns(), archive=archive, conversations=kept) as client:
        told = (await client.get(f"/v1/responses/{facts.id}")).json()["output"][0]["id"]
        name = await begin(client, HELLO, {"type": "item_reference", "id": told})
        assert [item["role"] for item in await items(client, name)] == ["user", "assistant"]
        unknown = {"type": "item_reference", "id": "msg_0"}
        refused = await client.post(f"/v1/conversations/{name}/items", json={"items": [HELLO, unknown]})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "items[1].id")
