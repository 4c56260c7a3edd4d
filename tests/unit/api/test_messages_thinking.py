"""`thinking.display: "omitted"` on POST /v1/messages: a thought that only its signature carries."""

from __future__ import annotations

from typing import Any

import pytest

from support.edge import edge_client
from support.fake_turns import MODEL, FakeTurns, Step, outcome, rich_turn
from support.messages import COUNT, HI, PATH, ask, stream
from warmlane.conversation.events import Finished
from warmlane.conversation.messages import Message, Reasoning, Role, Text

OMITTED = {"thinking": {"type": "enabled", "budget_tokens": 1024, "display": "omitted"}}


def thoughts(*texts: str) -> list[Step]:
    """A turn that thinks now and then."""
    parts = [part for text in texts for part in (Reasoning(text), Text("so."))]
    return [Finished(outcome(*parts))]


async def returned(turns: FakeTurns, *blocks: dict[str, Any], **fields: Any) -> tuple[Message, str]:
    """The assistant's message when these blocks come back, and what is warned of."""
    messages = [*HI, {"role": "assistant", "content": [*blocks, {"type": "text", "text": "so."}]}, *HI]
    body = {"model": MODEL, "max_tokens": 8, "messages": messages, **fields}
    async with edge_client(turns) as client:
        got = await client.post(PATH, json=body)
        counted = await client.post(COUNT, json=body)
    assert got.status_code == counted.status_code == 200, got.text
    assert turns.counted[-1].input == turns.last.input
    warnings = got.headers.get("x-warmlane-warnings", "")
    assert counted.headers.get("x-warmlane-warnings", "") == warnings
    return next(message for message in turns.last.input if message.role is Role.ASSISTANT), warnings


@pytest.mark.parametrize("thought", ["let me see", "ünïcode 🌧", "long " * 1000])
async def test_a_thought_comes_back_whole_from_its_signature(thought: str) -> None:
    turns = FakeTurns(thoughts(thought))
    block = (await ask(turns, **OMITTED))["content"][0]
    assert (block["type"], block["thinking"]) == ("thinking", "")
    assert thought not in block["signature"]
    assert await returned(turns, block) == (Message(Role.ASSISTANT, (Reasoning(thought), Text("so."))), "")
    assert await returned(turns, {**block, "thinking": thought}) == await returned(turns, block)


async def test_a_stream_shows_no_thinking_and_ends_its_block_with_the_signature() -> None:
    turns = FakeTurns(rich_turn())
    events = await stream(turns, **OMITTED)
    mine = [event for event in events if event.get("index") == 0]
    assert [event["type"] for event in mine] == ["content_block_start", "content_block_delta", "content_block_stop"]
    assert mine[0]["content_block"] == {"type": "thinking", "thinking": "", "signature": ""}
    assert mine[1]["delta"]["type"] == "signature_delta"
    assert events[-2]["usage"]["output_tokens_details"] == {"thinking_tokens": 2}
    block = {"type": "thinking", "thinking": "", "signature": mine[1]["delta"]["signature"]}
    said, warned = await returned(turns, block)
    assert (said.reasoning, warned) == ("let me see", "")


async def test_neighbouring_thoughts_are_one_block() -> None:
    turns = FakeTurns([Finished(outcome(Reasoning("let me "), Reasoning("see"), Text("so."), Reasoning("hm")))])
    blocks = (await ask(turns, **OMITTED))["content"]
    assert [block["type"] for block in blocks] == ["thinking", "text", "thinking"]
    assert (await returned(turns, blocks[0]))[0].reasoning == "let me see"
    assert (await returned(turns, blocks[2]))[0].reasoning == "hm"


async def test_a_signature_says_nothing_to_another_domain() -> None:
    turns = FakeTurns(thoughts("let me see"))
    block = (await ask(turns, **OMITTED))["content"][0]
    said, warned = await returned(turns, block, cache_salt="another")
    assert (said.parts, warned) == ((Text("so."),), "messages[1].content[0].signature: altered")


async def test_a_signature_that_was_changed_or_put_elsewhere_is_named() -> None:
    turns = FakeTurns(thoughts("let me see"))
    block = (await ask(turns, **OMITTED))["content"][0]
    signature = block["signature"]
    elsewhere = "wl2." + turns.seal(turns.domain("", None), b"something else that was sealed")
    for changed, reasoning in (
        ({**block, "signature": signature[:-8] + "AAAAAAAA"}, ""),
        ({**block, "signature": "wl2."}, ""),
        ({**block, "signature": elsewhere}, ""),
        ({**block, "thinking": "another thought"}, "another thought"),
    ):
        said, warned = await returned(turns, changed)
        assert (said.reasoning, warned) == (reasoning, "messages[1].content[0].signature: altered")
    said, warned = await returned(turns, {**block, "signature": "Ev8BCkYICxgC"})
    assert (said.reasoning, warned) == ("", "messages[1].content[0].signature: foreign")


async def test_without_it_thoughts_are_shown() -> None:
    for display in (None, "summarized"):
        fields = {"thinking": {"type": "enabled", "budget_tokens": 1024, "display": display}}
        block = (await ask(FakeTurns(thoughts("let me see")), **fields))["content"][0]
        assert block["thinking"] == "let me see"
