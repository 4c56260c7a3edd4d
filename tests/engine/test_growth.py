"""Memory over hundreds of long prompts, on llama.cpp with a tiny model; `soak/test_cases.py` does it on the embedded
one."""

from __future__ import annotations

import random
from pathlib import Path

import httpx
import pytest

from support.crowd import Guest, answers, empty, resident_bytes
from support.kills import metric
from support.server import live_server
from support.tiny_models import write_windowed

MIB = 1 << 20
BUDGET = 48 * MIB
N_PROMPTS = 220
N_WARM_UP = 5
N_FULL = 140
LENGTH = 1500
"""Tokens of a prompt: 0.4 MB of KV, so 120 of them fill memory, and all would take almost twice the budget."""


@pytest.mark.live
@pytest.mark.timeout(600)
@pytest.mark.parametrize("on_disk", [False, True], ids=["memory", "disk"])
async def test_hundreds_of_long_prompts_stay_within_the_memory_given_to_them(tmp_path: Path, on_disk: bool) -> None:
    path = tmp_path / "tiny.gguf"
    write_windowed(path)
    rng = random.Random(28)
    flags = ["--model", str(path), "--ram-cache", "48MiB", "--hot-tokens", "2000", "--ctx", "4096"]
    if on_disk:
        flags += ["--disk-cache", str(tmp_path / "kv"), "--disk-cache-size", "64MiB"]
    sizes: list[int] = []
    with live_server(*flags) as server:
        async with httpx.AsyncClient(base_url=server.base_url, timeout=120) as http:
            for n in range(N_PROMPTS):
                words = "".join(rng.choices("abcdefgh ", k=LENGTH))
                await answers(http, [Guest("chat", words)], model="tiny", system=f"{n}", salt="b28", max_tokens=2)
                sizes.append(resident_bytes(server))
            await empty(http)
            metrics = (await http.get("/metrics")).text
    growth, later = (max(sizes[n:]) - sizes[n] for n in (N_WARM_UP, N_FULL))
    print(f"grew by {growth / MIB:.1f} MiB, of which {later / MIB:.1f} when memory was full")
    assert metric(metrics, "warmlane_engine_ram_evictions") > 50
    assert (metric(metrics, "warmlane_engine_disk_writes") > 20) == on_disk
    assert growth < BUDGET * 1.2
    assert later < BUDGET * 0.2
