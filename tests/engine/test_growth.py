"""Memory over hundreds of long prompts, on llama.cpp with a tiny model; `soak/test_cases.py` does it on the embedded
one."""

from __future__ import annotations

import random
from pathlib import Path

import httpx
import pytest

from support.crowd import Guest, answers, empty, resident_bytes
from support.server import live_server
from support.tiny_models import write_windowed

MIB = 1 << 20
BUDGET = 16 * MIB
N_PROMPTS = 120
LENGTH = 1500
"""Tokens of a prompt: 0.4 MB of KV, so all of them would take three times the budget."""


@pytest.mark.live
@pytest.mark.timeout(240)
async def test_hundreds_of_long_prompts_stay_within_the_memory_given_to_them(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    write_windowed(path)
    rng = random.Random(28)
    flags = ("--model", str(path), "--ram-cache", "16MiB", "--hot-tokens", "2000", "--ctx", "4096")
    with live_server(*flags) as server:
        async with httpx.AsyncClient(base_url=server.base_url, timeout=120) as http:

            async def ask(n: int) -> None:
                words = "".join(rng.choices("abcdefgh ", k=LENGTH))
                await answers(http, [Guest("chat", words)], model="tiny", system=f"{n}", salt="b28", max_tokens=2)

            for n in range(5):
                await ask(n)
            before = resident_bytes(server)
            for n in range(5, N_PROMPTS):
                await ask(n)
            await empty(http)
            growth = resident_bytes(server) - before
    print(f"grew by {growth / MIB:.1f} MiB over {N_PROMPTS - 5} prompts")
    assert growth < BUDGET * 1.2
