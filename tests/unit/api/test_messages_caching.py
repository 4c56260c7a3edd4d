"""Cache breakpoints on POST /v1/messages: what they report, and what they keep."""

from __future__ import annotations

from typing import Any

import pytest

from support.edge import edge_client
from support.fake_turns import MODEL, FakeTurns
from support.messages import COUNT, PATH, ask, stream
from warmlane.conversation.turn import Pin


def marked(ttl: str | None) -> dict[str, Any]:
    return {"cache_control": {"type": "ephemeral", "ttl": ttl}}


def cached(*ttls: str | None) -> list[dict[str, Any]]:
    """A message with a breakpoint for each."""
    return [{"role": "user", "content": [{"type": "text", "text": "x", **marked(ttl)} for ttl in ttls]}]


@pytest.mark.parametrize(
    ("fields", "written"),
    [
        ({}, (0, 0)),
        ({"messages": cached(None)}, (6, 0)),
        ({"messages": cached("5m")}, (6, 0)),
        ({"messages": cached("1h")}, (0, 6)),
        ({"messages": cached("1h", "5m")}, (6, 0)),
        ({"system": [{"type": "text", "text": "s", **marked("1h")}]}, (0, 6)),
        ({"messages": cached("5m"), **marked("1h")}, (0, 6)),
    ],
)
async def test_what_is_written_to_the_cache_is_told_where_a_breakpoint_asks(
    fields: dict[str, Any], written: tuple[int, int]
) -> None:
    usage = (await ask(FakeTurns(), **fields))["usage"]
    events = await stream(FakeTurns(), **fields)
    creation = usage["cache_creation"]
    assert (creation["ephemeral_5m_input_tokens"], creation["ephemeral_1h_input_tokens"]) == written
    assert usage["input_tokens"] == 7 - sum(written)
    for told in (usage, events[1]["message"]["usage"], events[-2]["usage"]):
        assert told["cache_creation_input_tokens"] == sum(written)
        assert told["input_tokens"] + told["cache_read_input_tokens"] + sum(written) == 12


TOLD = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ()),
        ({"messages": [*TOLD, *cached("5m")]}, (Pin(3, 300.0),)),
        ({"messages": [*TOLD, *cached("5m")], "system": "s"}, (Pin(4, 300.0),)),
        (
            {"system": [{"type": "text", "text": "s", **marked("1h")}], "messages": cached("5m")},
            (Pin(1, 3600.0), Pin(2, 300.0)),
        ),
        ({"system": [{"type": "text", "text": "s", **marked("5m")}], "messages": cached("1h")}, (Pin(2, 3600.0),)),
        ({"messages": [*cached(None), *TOLD[1:], *TOLD[:1]]}, (Pin(1, 300.0),)),
        ({"messages": cached("5m"), **marked("1h")}, (Pin(1, 3600.0),)),
        ({"tools": [{"name": "f", "input_schema": {"type": "object"}, **marked(None)}]}, ()),
    ],
)
async def test_a_breakpoint_pins_the_prompt_up_to_the_end_of_its_message(
    fields: dict[str, Any], expected: tuple[Pin, ...]
) -> None:
    turns = FakeTurns()
    await ask(turns, **fields)
    assert turns.last.pins == expected


async def test_a_fifth_breakpoint_is_refused_in_the_vendors_words() -> None:
    tool = {"name": "f", "input_schema": {"type": "object"}, **marked(None)}
    result = {"type": "tool_result", "tool_use_id": "c", "content": cached(None)[0]["content"]}
    four = {"tools": [tool], "system": [{"type": "text", "text": "s", **marked("1h")}], "messages": cached("5m", "1h")}
    await ask(FakeTurns(), **four)
    used = {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]}
    async with edge_client(FakeTurns()) as client:
        for extra in (marked(None), {"messages": [*four["messages"], used, {"role": "user", "content": [result]}]}):
            for path in (PATH, COUNT):
                got = await client.post(path, json={"model": MODEL, "max_tokens": 8, **four, **extra})
                assert got.status_code == 400
                assert got.json()["error"] == {
                    "type": "invalid_request_error",
                    "message": "A maximum of 4 blocks with cache_control may be provided. Found 5.",
                }
