"""Conversation objects over the vendor's SDK, and turns that are said in them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
from openai import OpenAI

from support.server import LiveServer, live_server

pytestmark = pytest.mark.live
MODEL = "simulated"


def sdk(server: LiveServer) -> OpenAI:
    return OpenAI(base_url=f"{server.base_url}/v1", api_key="none", max_retries=0)


@pytest.fixture
def client(server: LiveServer) -> Iterator[OpenAI]:
    with sdk(server) as made:
        yield made


def texts(client: OpenAI, conversation_id: str) -> list[str]:
    items = client.conversations.items.list(conversation_id, order="asc", limit=100)
    return [part.text for item in items for part in item.content]  # type: ignore[union-attr]


def test_a_conversation_and_its_items_live_and_go(client: OpenAI) -> None:
    made = client.conversations.create(
        items=[{"type": "message", "role": "user", "content": "hello"}], metadata={"topic": "a"}
    )
    assert client.conversations.retrieve(made.id) == made
    assert client.conversations.update(made.id, metadata={"topic": "b"}).metadata == {"topic": "b"}
    added = client.conversations.items.create(
        made.id, items=[{"type": "message", "role": "assistant", "content": "hi"}]
    )
    assert client.conversations.items.retrieve(added.data[0].id, conversation_id=made.id) == added.data[0]
    assert texts(client, made.id) == ["hello", "hi"]
    client.conversations.items.delete(added.data[0].id, conversation_id=made.id)
    assert texts(client, made.id) == ["hello"]
    assert client.conversations.delete(made.id).deleted
    with pytest.raises(openai.NotFoundError):
        client.conversations.retrieve(made.id)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_turns_are_said_in_a_conversation_and_find_it_warm(client: OpenAI, stream: bool) -> None:
    conversation = client.conversations.create(items=[{"type": "message", "role": "developer", "content": "be brief"}])
    cached = []
    for n in range(3):
        if stream:
            with client.responses.stream(model=MODEL, input=f"turn {n}", conversation=conversation.id) as events:
                response = events.get_final_response()
        else:
            response = client.responses.create(model=MODEL, input=f"turn {n}", conversation=conversation.id)  # type: ignore[assignment]
        assert response.conversation is not None
        assert (response.conversation.id, response.previous_response_id) == (conversation.id, None)
        assert response.usage is not None
        cached.append((response.usage.input_tokens_details.cached_tokens, response.usage.total_tokens))
        assert client.responses.retrieve(response.id).conversation == response.conversation

    said = ["be brief"]
    for n in range(3):
        said += [f"turn {n}", f"echo: turn {n}"]
    assert texts(client, conversation.id) == said
    for (_, before), (reused, _) in itertools.pairwise(cached):
        assert reused >= before - 1


def test_what_a_client_changed_is_what_the_next_turn_continues(client: OpenAI) -> None:
    conversation = client.conversations.create()
    client.responses.create(model=MODEL, input="a secret " * 20, conversation=conversation.id)
    for item in client.conversations.items.list(conversation.id):
        client.conversations.items.delete(item.id or "", conversation_id=conversation.id)
    short = client.responses.create(model=MODEL, input="hello", conversation={"id": conversation.id})
    alone = client.responses.create(model=MODEL, input="hello")

    assert short.usage is not None
    assert alone.usage is not None
    assert short.usage.input_tokens == alone.usage.input_tokens


def test_counting_tokens_counts_the_conversation(client: OpenAI) -> None:
    conversation = client.conversations.create(items=[{"type": "message", "role": "user", "content": "hello " * 20}])
    counted = client.responses.input_tokens.count(model=MODEL, input="more", conversation=conversation.id)
    used = client.responses.create(model=MODEL, input="more", conversation=conversation.id)
    assert used.usage is not None
    assert counted.input_tokens == used.usage.input_tokens


def test_a_conversation_that_does_not_go_with_the_rest_is_refused(client: OpenAI) -> None:
    conversation = client.conversations.create()
    first = client.responses.create(model=MODEL, input="hello")
    with pytest.raises(openai.NotFoundError) as unknown:
        client.responses.create(model=MODEL, input="x", conversation="conv_none")
    with pytest.raises(openai.BadRequestError) as both:
        client.responses.create(model=MODEL, input="x", conversation=conversation.id, previous_response_id=first.id)
    with pytest.raises(openai.BadRequestError) as unstored:
        client.responses.create(model=MODEL, input="x", conversation=conversation.id, store=False)
    assert [e.value.param for e in (unknown, both, unstored)] == ["conversation", "conversation", "store"]
    assert texts(client, conversation.id) == []


def test_a_failed_turn_leaves_the_conversation_as_it_was(client: OpenAI) -> None:
    conversation = client.conversations.create()
    with pytest.raises(openai.APIStatusError):
        client.responses.create(model=MODEL, input="FAIL:2", conversation=conversation.id)
    assert texts(client, conversation.id) == []


def test_a_conversation_goes_on_after_a_restart(tmp_path: Path) -> None:
    store = tmp_path / "responses.db"
    with live_server("--engine", "simulated", store=store) as server, sdk(server) as client:
        conversation = client.conversations.create()
        client.responses.create(model=MODEL, input="one", conversation=conversation.id)
        server.process.kill()
        server.process.wait()
    with live_server("--engine", "simulated", store=store) as server, sdk(server) as client:
        client.responses.create(model=MODEL, input="two", conversation=conversation.id)
        assert texts(client, conversation.id) == ["one", "echo: one", "two", "echo: two"]
