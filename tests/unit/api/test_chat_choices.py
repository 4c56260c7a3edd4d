"""`n` on POST /v1/chat/completions."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs
from openai.types.chat import ChatCompletion

from support.edge import check_chat, edge_client, sse_events
from support.fake_turns import MODEL, FakeTurns, Step, outcome
from warmlane.conversation.events import (
    Finished,
    OtherChoice,
    ReasoningDelta,
    Started,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    Validated,
)
from warmlane.conversation.messages import Message, Reasoning, Role, Text, ToolCall
from warmlane.conversation.tools import TokenLogprob
from warmlane.conversation.turn import Choice, StopReason

PATH = "/v1/chat/completions"
HI = [{"role": "user", "content": "hi"}]
LIKELY = (TokenLogprob("two", -0.5, b"two"),)


def three() -> list[Step]:
    """Text; text with log probabilities, cut short; a thought and a call."""
    others = (
        Choice(message=Message(Role.ASSISTANT, (Text("two"),)), stop_reason=StopReason.LENGTH, logprobs=LIKELY),
        Choice(
            message=Message(Role.ASSISTANT, (Reasoning("hm"), ToolCall("call_a", "look", '{"at":1}'))),
            stop_reason=StopReason.TOOL_CALLS,
        ),
    )
    return [
        Validated(),
        Started(12, 5),
        TextDelta("on"),
        OtherChoice(2, ReasoningDelta("hm")),
        OtherChoice(1, TextDelta("two", LIKELY)),
        OtherChoice(2, ToolCallStarted(0, "call_a", "look")),
        TextDelta("e"),
        OtherChoice(2, ToolCallDelta(0, '{"at":1}')),
        Finished(structs.replace(outcome(Text("one"), output_tokens=9), others=others)),
    ]


async def test_choices_of_an_answer() -> None:
    turns = FakeTurns(three())
    async with edge_client(turns) as client:
        got = await client.post(PATH, json={"model": MODEL, "messages": HI, "n": 3})
    assert got.status_code == 200
    body = got.json()
    ChatCompletion.model_validate(body)
    assert turns.last.n_choices == 3
    assert turns.open_permits == 0
    assert len(turns.permits) == 1
    choices = body["choices"]
    assert [choice["index"] for choice in choices] == [0, 1, 2]
    assert [choice["finish_reason"] for choice in choices] == ["stop", "length", "tool_calls"]
    assert [choice["message"]["content"] for choice in choices] == ["one", "two", None]
    assert choices[2]["message"]["tool_calls"][0]["function"] == {"name": "look", "arguments": '{"at":1}'}
    assert choices[2]["message"]["reasoning_content"] == "hm"
    assert [bool(choice["logprobs"]) for choice in choices] == [False, True, False]
    assert (body["usage"]["prompt_tokens"], body["usage"]["completion_tokens"]) == (12, 9)


@pytest.mark.parametrize("usage", [False, True])
async def test_choices_of_a_stream(usage: bool) -> None:
    body = {"model": MODEL, "messages": HI, "n": 3, "stream": True, "stream_options": {"include_usage": usage}}
    async with edge_client(FakeTurns(three())) as client:
        got = await client.post(PATH, json=body)
    assert got.text.endswith("data: [DONE]\n\n")
    chunks = sse_events(got.content, named=False)
    check_chat(chunks, n_choices=3)
    said: dict[int, dict[str, Any]] = {0: {}, 1: {}, 2: {}}
    for chunk in chunks:
        assert len(chunk["choices"]) == (not (usage and chunk is chunks[-1]))
        for choice in chunk["choices"]:
            mine = said[choice["index"]]
            for key in ("content", "reasoning_content"):
                mine[key] = mine.get(key, "") + choice["delta"].get(key, "")
            for call in choice["delta"].get("tool_calls", ()):
                mine["arguments"] = mine.get("arguments", "") + call["function"]["arguments"]
            mine["finish"] = choice["finish_reason"]
    assert [said[i]["content"] for i in range(3)] == ["one", "two", ""]
    assert (said[2]["reasoning_content"], said[2]["arguments"]) == ("hm", '{"at":1}')
    assert [said[i]["finish"] for i in range(3)] == ["stop", "length", "tool_calls"]
    assert ["warmlane" in chunk for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    if usage:
        assert chunks[-1]["usage"]["completion_tokens"] == 9


@pytest.mark.parametrize("n", [0, -1, 17, 10**30, 1.5, "2", True, []])
async def test_a_number_of_choices_that_cannot_be_made(n: object) -> None:
    turns = FakeTurns()
    async with edge_client(turns) as client:
        got = await client.post(PATH, json={"model": MODEL, "messages": HI, "n": n})
    assert got.status_code == 400
    assert got.json()["error"]["param"] == "n"
    assert "'n'" in got.json()["error"]["message"]
    assert (turns.requests, turns.open_permits) == ([], 0)


@pytest.mark.parametrize("n", [None, 1, 16])
async def test_how_many_may_be_asked_for(n: int | None) -> None:
    turns = FakeTurns()
    async with edge_client(turns) as client:
        got = await client.post(PATH, json={"model": MODEL, "messages": HI, "n": n})
    assert got.status_code == 200
    assert turns.last.n_choices == (n or 1)
