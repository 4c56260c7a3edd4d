"""Chains over a live server, at the instants where a naive one loses its warm session."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

import httpx
import pytest

from support.burst import burst, connect
from support.chaining import chained_rounds
from support.server import LiveServer

pytestmark = pytest.mark.live
MODEL = "simulated"


async def test_chaining_the_instant_the_terminal_event_arrives_always_hits(server: LiveServer) -> None:
    assert Counter(await chained_rounds(server.base_url, MODEL, rounds=100)) == {"hit": 100}


async def test_two_chained_to_one_id_at_the_same_instant_both_answer_and_one_leases(server: LiveServer) -> None:
    async with httpx.AsyncClient(base_url=server.base_url, timeout=60) as client:
        for _ in range(10):
            first = (await client.post("/v1/responses", json={"model": MODEL, "input": "hello"})).json()
            body = {"model": MODEL, "input": "more", "previous_response_id": first["id"]}
            async with burst(server.base_url, "/v1/responses", body, n=2) as both:
                answers = await asyncio.gather(*both)
            texts = [json.loads(a.body)["output"][0]["content"][0]["text"] for a in answers]
            assert texts == ["echo: more"] * 2
            assert sum(a.headers["x-session-cache"] == "hit" for a in answers) == 1


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_an_interrupted_turn_is_followed_by_a_warm_one(server: LiveServer, stream: bool) -> None:
    async with httpx.AsyncClient(base_url=server.base_url, timeout=60) as client:
        first = (await client.post("/v1/responses", json={"model": MODEL, "input": "hello"})).json()
        chained = {"model": MODEL, "previous_response_id": first["id"]}
        endless = chained | {"input": "SLOW:1000 " + "x" * 600, "stream": stream}
        interrupted = await connect(server.base_url, "/v1/responses", endless)
        interrupted.send()
        while (await client.get("/ready")).json()["active"] != 1:
            pass
        interrupted.leave()
        while (await client.get("/ready")).json()["active"]:
            pass
        after = await client.post("/v1/responses", json=chained | {"input": "instead"})
        assert after.headers["x-session-cache"] == "hit"
        assert int(after.headers["x-cached-tokens"]) >= first["usage"]["total_tokens"] - 1
