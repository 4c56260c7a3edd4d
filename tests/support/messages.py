"""POST /v1/messages to the edge over a scripted spine, its answers and streams checked."""

from __future__ import annotations

from typing import Any

from anthropic.types import Message as AnthropicMessage

from support.edge import check_messages, edge_client, sse_events
from support.fake_turns import MODEL, FakeTurns

PATH = "/v1/messages"
COUNT = "/v1/messages/count_tokens"
HI = [{"role": "user", "content": "hi"}]


async def ask(turns: FakeTurns, **fields: Any) -> dict[str, Any]:
    """The answer in one piece."""
    async with edge_client(turns) as client:
        got = await client.post(PATH, json={"model": MODEL, "max_tokens": 8, "messages": HI, **fields})
    assert got.status_code == 200, got.text
    body: dict[str, Any] = got.json()
    AnthropicMessage.model_validate(body)
    return body


async def stream(turns: FakeTurns, **fields: Any) -> list[dict[str, Any]]:
    """The events of the streamed answer."""
    body = {"model": MODEL, "max_tokens": 8, "messages": HI, "stream": True, **fields}
    async with edge_client(turns) as client:
        got = await client.post(PATH, json=body)
    events = sse_events(got.content, named=True)
    check_messages(events)
    return events
