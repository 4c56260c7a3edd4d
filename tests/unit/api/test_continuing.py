"""Requests whose reply goes on from the assistant's last message, on Messages and on Chat."""

from __future__ import annotations

from typing import Any

import pytest

from support.edge import edge_client
from support.fake_turns import MODEL, FakeTurns
from support.messages import COUNT, HI, PATH, ask
from warmlane.conversation.messages import Message, Role, Text
from warmlane.conversation.tools import Thinking

CHAT = "/v1/chat/completions"
BEGUN = {"role": "assistant", "content": "The answer is ("}
DIALOGUE = (Message(Role.USER, (Text("hi"),)), Message(Role.ASSISTANT, (Text("The answer is ("),)))
USED = {"type": "tool_use", "id": "t1", "name": "f", "input": {}}


async def test_messages_go_on_from_the_assistants_last_message() -> None:
    turns = FakeTurns()
    said = [{"type": "text", "text": "The answer"}, {"type": "text", "text": " is ("}]
    for content in (BEGUN["content"], said):
        body = await ask(turns, messages=[*HI, {"role": "assistant", "content": content}])
        assert body["content"][0]["text"] == "Hello world"
        assert turns.last.continues
        assert [message.text for message in turns.last.input] == ["hi", "The answer is ("]
    async with edge_client(turns) as client:
        got = await client.post(COUNT, json={"model": MODEL, "messages": [*HI, BEGUN]})
    assert got.status_code == 200
    assert (turns.counted[-1].continues, turns.counted[-1].input) == (True, DIALOGUE)


@pytest.mark.parametrize("content", ["", [], [{"type": "text", "text": ""}]])
async def test_an_empty_last_message_begins_nothing(content: object) -> None:
    turns = FakeTurns()
    cached = {"cache_control": {"type": "ephemeral"}}
    await ask(turns, messages=[*HI, {"role": "assistant", "content": content}], **cached)
    assert (turns.last.continues, turns.last.input) == (False, DIALOGUE[:1])
    assert [pin.n_messages for pin in turns.last.pins] == [1]


@pytest.mark.parametrize(
    ("content", "fields", "message"),
    [
        ("so ", {}, "messages: final assistant content cannot end with trailing whitespace"),
        ("so\n", {}, "messages: final assistant content cannot end with trailing whitespace"),
        (" ", {}, "messages: final assistant content cannot end with trailing whitespace"),
        ("so", {"thinking": {"type": "enabled", "budget_tokens": 1024}}, "'thinking': must be disabled"),
        ("so", {"thinking": {"type": "adaptive"}}, "'thinking': must be disabled"),
        ([USED], {}, "messages[1]: `tool_use` ids were found without `tool_result` blocks immediately after: t1."),
        (
            [{"type": "text", "text": "so"}, USED, {**USED, "id": "t2"}],
            {},
            "messages[1]: `tool_use` ids were found without `tool_result` blocks immediately after: t1, t2.",
        ),
        (
            [{"type": "thinking", "thinking": "hm", "signature": ""}],
            {},
            "'messages[1]': begins the reply with thinking",
        ),
    ],
)
async def test_what_messages_cannot_go_on_from(content: object, fields: dict[str, Any], message: str) -> None:
    turns = FakeTurns()
    body = {"model": MODEL, "max_tokens": 8, "messages": [*HI, {"role": "assistant", "content": content}], **fields}
    async with edge_client(turns) as client:
        for path in (PATH, COUNT):
            got = await client.post(path, json=body)
            assert got.status_code == 400
            assert got.json()["error"]["message"].startswith(message)
    assert (turns.requests, turns.open_permits) == ([], 0)


@pytest.mark.parametrize(
    ("last", "fields"),
    [
        (BEGUN, {"continue_final_message": True}),
        (BEGUN, {"continue_final_message": True, "add_generation_prompt": False}),
        ({**BEGUN, "prefix": True}, {}),
        ({**BEGUN, "prefix": True}, {"reasoning_effort": "none", "chat_template_kwargs": {"enable_thinking": False}}),
    ],
)
async def test_chat_goes_on_where_it_is_asked_to(last: dict[str, Any], fields: dict[str, Any]) -> None:
    turns = FakeTurns()
    async with edge_client(turns) as client:
        got = await client.post(CHAT, json={"model": MODEL, "messages": [*HI, last], **fields})
    assert got.status_code == 200
    assert "x-warmlane-warnings" not in got.headers
    assert (turns.last.continues, turns.last.input) == (True, DIALOGUE)
    assert turns.last.thinking == Thinking(enabled=False)


@pytest.mark.parametrize("fields", [{}, {"continue_final_message": False, "add_generation_prompt": True}])
async def test_chat_answers_the_assistants_last_message_otherwise(fields: dict[str, Any]) -> None:
    turns = FakeTurns()
    async with edge_client(turns) as client:
        got = await client.post(CHAT, json={"model": MODEL, "messages": [*HI, {**BEGUN, "prefix": False}], **fields})
    assert got.status_code == 200
    assert (turns.last.continues, turns.last.input) == (False, DIALOGUE)


@pytest.mark.parametrize(
    ("messages", "fields", "param"),
    [
        (HI, {"continue_final_message": True}, "continue_final_message"),
        ([*HI, BEGUN], {"add_generation_prompt": False}, "add_generation_prompt"),
        ([{**HI[0], "prefix": True}], {}, "messages[0].prefix"),
        ([{**BEGUN, "prefix": True}, *HI], {}, "messages[0].prefix"),
        ([{**BEGUN, "prefix": True}, BEGUN], {}, "messages[0].prefix"),
        ([*HI, {**BEGUN, "prefix": True}], {"reasoning_effort": "low"}, "reasoning_effort"),
        (
            [*HI, {**BEGUN, "prefix": True}],
            {"chat_template_kwargs": {"enable_thinking": True}},
            "chat_template_kwargs.enable_thinking",
        ),
        ([*HI, {**BEGUN, "prefix": True, "content": ""}], {}, "messages[1].content"),
        ([*HI, {**BEGUN, "prefix": True, "reasoning_content": "hm"}], {}, "messages[1]"),
        (
            [
                *HI,
                {
                    **BEGUN,
                    "prefix": True,
                    "tool_calls": [{"id": "t1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
                },
            ],
            {},
            "messages[1]",
        ),
        (HI, {"continue_final_message": "yes"}, "continue_final_message"),
    ],
)
async def test_what_chat_cannot_go_on_from(messages: list[Any], fields: dict[str, Any], param: str) -> None:
    turns = FakeTurns()
    async with edge_client(turns) as client:
        got = await client.post(CHAT, json={"model": MODEL, "messages": messages, **fields})
    assert got.status_code == 400
    assert got.json()["error"]["param"] == param
    assert (turns.requests, turns.open_permits) == ([], 0)
