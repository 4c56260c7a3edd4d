"""Rounds of chaining over HTTP: the next request leaves in the moment the terminal event arrives."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack

import httpx


async def chained_rounds(base_url: str, model: str, *, rounds: int, turns: int = 20, leaves: bool = False) -> list[str]:
    """What each of `rounds` chained turns says of its cache. A conversation has `turns` of them.

    A client that `leaves` closes the stream at its terminal event; else it is still open while the next turn starts.
    """
    outcomes: list[str] = []
    async with httpx.AsyncClient(base_url=base_url, timeout=60) as client:
        while len(outcomes) < rounds:
            previous: str | None = None
            async with AsyncExitStack() as open_streams:
                for turn in range(turns + 1):
                    body = {"model": model, "input": "EMIT:k", "stream": True, "previous_response_id": previous}
                    response = await open_streams.enter_async_context(client.stream("POST", "/v1/responses", json=body))
                    previous, session_cache = await terminal(response)
                    if turn:
                        outcomes.append(session_cache)
                    if leaves:
                        await open_streams.aclose()
    return outcomes


async def terminal(response: httpx.Response) -> tuple[str, str]:
    """The response's id and what became of its cache, from the terminal event; nothing after it is read."""
    async for line in response.aiter_lines():
        if line.startswith("data: "):
            event = json.loads(line[6:])
            if event["type"] == "response.completed":
                final = event["response"]
                return final["id"], final["prompt_cache_diagnostics"]["session_cache"]
    raise AssertionError("the stream did not complete")
