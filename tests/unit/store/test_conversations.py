"""Conversations that are kept as such."""

from __future__ import annotations

import asyncio

import msgspec

from unit.store.turns import NOW, turn
from warmlane.conversation.kept import Conversation, Entry
from warmlane.conversation.messages import Message, Reasoning, Role, Sampled, Text, ToolCall, ToolResult
from warmlane.store import Continued, ResponseStore

CONVERSATION = Conversation(id="conv_1", tenant="ada", created_at=NOW, used_at=NOW, metadata=b'{"topic":"a"}')
RICH = (
    Entry("e1", Message(Role.USER, (Text("naïve 🦆 \0"),))),
    Entry("e2", Message(Role.ASSISTANT, (Reasoning("hm"), ToolCall("c", "f", "{}")), Sampled((1, 2), "x", "t"))),
    Entry("e3", Message(Role.TOOL, (ToolResult("c", "out"),))),
)


def said(entry_id: str, text: str | None = None) -> Entry:
    return Entry(entry_id, Message(Role.USER, (Text(text or entry_id),)))


async def entries(
    store: ResponseStore, tenant: str = "ada", conversation_id: str = "conv_1"
) -> tuple[Entry, ...] | None:
    transcript = await store.conversations.read(conversation_id, tenant)
    assert transcript is None or transcript.conversation == await store.conversations.get(conversation_id, tenant)
    return None if transcript is None else transcript.entries


async def ids(store: ResponseStore) -> list[str]:
    return [entry.id for entry in await entries(store) or ()]


async def revision(store: ResponseStore) -> int:
    found = await store.conversations.get("conv_1", "ada")
    assert found is not None
    return found.revision


async def say(store: ResponseStore, response_id: str, *, seen: int | None = None) -> None:
    """A turn that ends in the conversation as it is, or as it was at revision `seen`."""
    continued = Continued("conv_1", await revision(store) if seen is None else seen)
    await store.save(turn(response_id), continued=continued)


async def last_response(store: ResponseStore) -> str | None:
    found = await store.conversations.get("conv_1", "ada")
    assert found is not None
    return found.last_response_id


async def test_what_is_put_in_comes_back_in_order(store: ResponseStore) -> None:
    await store.conversations.create(CONVERSATION, RICH)
    assert await store.conversations.get("conv_1", "ada") == msgspec.structs.replace(CONVERSATION, revision=1)
    assert await entries(store) == RICH

    assert await store.conversations.add("conv_1", "ada", [said("e4"), said("e5")], now=NOW + 5)
    assert await ids(store) == ["e1", "e2", "e3", "e4", "e5"]
    found = await store.conversations.get("conv_1", "ada")
    assert found == msgspec.structs.replace(CONVERSATION, used_at=NOW + 5, revision=2)


async def test_an_empty_conversation_is_not_an_unknown_one(store: ResponseStore) -> None:
    await store.conversations.create(CONVERSATION)

    assert await entries(store) == ()
    assert await entries(store, conversation_id="conv_2") is None


async def test_metadata_is_replaced(store: ResponseStore) -> None:
    await store.conversations.create(CONVERSATION, RICH)
    changed = await store.conversations.set_metadata("conv_1", "ada", b"{}")

    assert changed == msgspec.structs.replace(CONVERSATION, metadata=b"{}", revision=1)
    assert await store.conversations.get("conv_1", "ada") == changed
    assert await store.conversations.set_metadata("conv_2", "ada", b"{}") is None


async def test_entries_are_replaced_and_removed_one_by_one(store: ResponseStore) -> None:
    await store.conversations.create(CONVERSATION, RICH)

    assert await store.conversations.replace("conv_1", "ada", said("e2", "other"), now=NOW)
    assert await store.conversations.remove("conv_1", "ada", "e1", now=NOW)
    assert not await store.conversations.remove("conv_1", "ada", "e1", now=NOW)
    assert not await store.conversations.replace("conv_1", "ada", said("e9"), now=NOW)
    assert await entries(store) == (said("e2", "other"), RICH[2])
    await store.conversations.add("conv_1", "ada", [said("e4")], now=NOW)
    assert await ids(store) == ["e2", "e3", "e4"]


async def test_a_deleted_conversation_takes_its_entries_along(store: ResponseStore) -> None:
    await store.conversations.create(CONVERSATION, RICH)

    assert await store.conversations.delete("conv_1", "ada")
    assert not await store.conversations.delete("conv_1", "ada")
    await store.conversations.create(CONVERSATION)
    assert await ids(store) == []


async def test_a_foreign_conversation_is_an_unknown_one(store: ResponseStore) -> None:
    await store.conversations.create(CONVERSATION, RICH)
    theirs = store.conversations

    assert await theirs.get("conv_1", "bob") is None
    assert await entries(store, "bob") is None
    assert await theirs.set_metadata("conv_1", "bob", b"{}") is None
    assert not await theirs.add("conv_1", "bob", [said("x")], now=NOW)
    assert not await theirs.replace("conv_1", "bob", said("e1", "x"), now=NOW)
    assert not await theirs.remove("conv_1", "bob", "e1", now=NOW)
    assert not await theirs.delete("conv_1", "bob")
    await store.save(turn("r1", tenant="bob"), continued=Continued("conv_1", 0))
    assert await entries(store) == RICH


async def test_a_turn_adds_what_it_was_asked_and_what_it_answered(store: ResponseStore) -> None:
    await store.conversations.create(CONVERSATION, [said("e1")])
    await say(store, "r1")

    found = await entries(store)
    assert found is not None
    assert [entry.message for entry in found[1:]] == [*turn("r1").input, turn("r1").output]
    assert await last_response(store) == "r1"


async def test_what_a_client_changes_is_not_the_last_turns_any_more(store: ResponseStore) -> None:
    await store.conversations.create(CONVERSATION)
    for n, change in enumerate(("add", "replace", "remove")):
        await say(store, f"r{n}")
        assert await last_response(store) == f"r{n}"
        if change == "add":
            await store.conversations.add("conv_1", "ada", [said("e1")], now=NOW)
        elif change == "replace":
            await store.conversations.replace("conv_1", "ada", said("e1", "x"), now=NOW)
        else:
            await store.conversations.remove("conv_1", "ada", "e1", now=NOW)
        assert await last_response(store) is None


async def test_a_turn_that_missed_another_is_not_the_last(store: ResponseStore) -> None:
    await store.conversations.create(CONVERSATION)
    await say(store, "r1", seen=0)
    await say(store, "r2", seen=0)

    assert len(await ids(store)) == 4
    assert await last_response(store) is None
    await say(store, "r3")
    assert await last_response(store) == "r3"


async def test_a_turn_whose_conversation_was_deleted_is_stored_all_the_same(store: ResponseStore) -> None:
    await store.save(turn("r1"), continued=Continued("conv_gone", 0))

    assert await store.get("r1", "ada", now=NOW) == turn("r1")
    assert await entries(store, conversation_id="conv_gone") is None


async def test_a_turn_that_is_saved_again_is_said_once(store: ResponseStore) -> None:
    """As by a writer that was told of a failure although all was written."""
    await store.conversations.create(CONVERSATION)
    for response_id in ("r1", "r1", "r2", "r1"):
        await say(store, response_id)

    assert await ids(store) == ["r1_0000", "r1_0001", "r2_0000", "r2_0001"]


async def test_turns_that_end_at_once_are_whole_and_one_behind_the_other(store: ResponseStore) -> None:
    await store.conversations.create(CONVERSATION)
    await asyncio.gather(*(say(store, f"r{n:02}") for n in range(20)))

    found = await ids(store)
    assert len(found) == 40
    for asked, answered in zip(found[::2], found[1::2], strict=True):
        assert (asked[:3], asked[3:], answered[3:]) == (answered[:3], "_0000", "_0001")


async def test_erasing_a_tenant_leaves_nothing_of_it_and_all_of_the_others(store: ResponseStore) -> None:
    for tenant in ("ada", "bob"):
        await store.save(msgspec.structs.replace(turn(f"r1{tenant}", tenant=tenant), domain=tenant.encode()))
        await store.save(turn(f"r2{tenant}", f"r1{tenant}", tenant=tenant))
        mine = msgspec.structs.replace(CONVERSATION, id=f"conv_{tenant}", tenant=tenant)
        await store.conversations.create(mine, RICH)

    erased = await store.erase("ada")

    assert (sorted(erased.response_ids), erased.conversation_ids) == (["r1ada", "r2ada"], ("conv_ada",))
    assert erased.domains == {b"ada"}
    assert await store.get("r1ada", "ada", now=NOW) is None
    assert await entries(store, "ada", "conv_ada") is None
    assert await store.history("r2bob", "bob", now=NOW) is not None
    assert await entries(store, "bob", "conv_bob") == RICH
    assert (await store.erase("ada")).response_ids == ()
