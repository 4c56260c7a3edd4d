"""A server that is killed in the middle of its turns, and what its clients know afterwards."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from support.server import LiveServer, live_server

FLAGS = ("--engine", "simulated", "--capacity", "20", "--max-waiting", "40")
TEXT = "abcdefghij" * 3


@dataclass
class Seen:
    """By response id: that it was begun, and the whole response of its terminal event where the client saw that."""

    begun: set[str] = field(default_factory=set)
    ended: dict[str, dict[str, object]] = field(default_factory=dict)


async def killed_midway(store: Path | str, *, turns: int, kill_after: int) -> Seen:
    """Run `turns` at once, each a chain of its own, and kill the server at the `kill_after`th terminal event."""
    seen, enough = Seen(), asyncio.Event()
    with live_server(*FLAGS, store=store) as server:
        async with httpx.AsyncClient(
            base_url=server.base_url, timeout=60, limits=httpx.Limits(max_connections=None)
        ) as client:
            asking = [asyncio.create_task(_chain(client, seen, enough, kill_after, lag=n % 5)) for n in range(turns)]
            await enough.wait()
            server.process.kill()
            await asyncio.gather(*asking)
        server.process.wait()
    return seen


async def _chain(client: httpx.AsyncClient, seen: Seen, enough: asyncio.Event, kill_after: int, *, lag: int) -> None:
    """One turn after the other, until the connection breaks."""
    previous: str | None = None
    while True:
        # Of different lengths, so that the kill meets turns in every state.
        body = {"model": "simulated", "input": f"SLOW:{lag} {TEXT}", "stream": True, "previous_response_id": previous}
        try:
            async with client.stream("POST", "/v1/responses", json=body) as response:
                previous = await _read(response, seen)
        except httpx.TransportError:
            return
        if previous is None:
            return
        if len(seen.ended) >= kill_after:
            enough.set()


async def _read(response: httpx.Response, seen: Seen) -> str | None:
    async for line in response.aiter_lines():
        if line.startswith("data: "):
            event = json.loads(line[6:])
            if event["type"] == "response.created":
                seen.begun.add(event["response"]["id"])
            elif event["type"] == "response.completed":
                seen.ended[event["response"]["id"]] = event["response"]
                return str(event["response"]["id"])
    return None


def check_kept(store: Path | str, seen: Seen) -> None:
    """After a restart what a client saw end is there as it was told and can be chained on; nothing is there in part."""
    with live_server(*FLAGS, store=store) as server, httpx.Client(base_url=server.base_url, timeout=60) as client:
        for response_id, told in seen.ended.items():
            found = client.get(f"/v1/responses/{response_id}")
            assert found.status_code == 200, f"{response_id} was told of and is lost"
            assert found.json()["output"] == told["output"]
            assert found.json()["status"] == told["status"]
        for response_id in seen.begun - seen.ended.keys():
            _check_whole_or_absent(client, response_id)
        last = next(reversed(seen.ended))
        body = {"model": "simulated", "input": "more", "previous_response_id": last}
        assert client.post("/v1/responses", json=body).status_code == 200
        _check_served(server)


def _check_whole_or_absent(client: httpx.Client, response_id: str) -> None:
    found = client.get(f"/v1/responses/{response_id}")
    if found.status_code == 404:
        return
    assert found.status_code == 200
    assert found.json()["status"] == "completed"
    assert TEXT in found.json()["output"][0]["content"][0]["text"]


def _check_served(server: LiveServer) -> None:
    assert server.process.poll() is None
    assert not any("Traceback" in line for line in server.output)
