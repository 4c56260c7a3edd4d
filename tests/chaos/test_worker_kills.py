"""The worker is killed under load; `tests/soak/test_worker_kills.py` does it fifty times, and on the real model."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from support.kills import nothing_left, ordeal
from support.server import live_server

pytestmark = [pytest.mark.live, pytest.mark.timeout(180)]


def message(rng: random.Random, number: str) -> str:
    return (
        f"SLEEP:0.0{rng.randrange(9)} SLOW:{rng.randrange(8)} My number is {number}. {'So be it. ' * rng.randrange(40)}"
    )


async def test_a_worker_killed_at_any_moment_costs_its_turns_and_nothing_else(tmp_path: Path) -> None:
    """Tokens are hashes of all cells seen, and equal those of a server that nobody disturbs."""
    flags = ("--engine", "simulated", "--simulated-hash", "--max-waiting", "64")
    variables = {"TMPDIR": str(tmp_path)}
    with live_server(*flags, variables=variables) as server, live_server(*flags) as calm:
        killer = await ordeal(
            server,
            tmp_path,
            phases=1,
            moments=("prefill", "decode", "loading", "decode"),
            model="simulated",
            message=message,
            calm=calm.base_url,
            max_tokens=40,
        )
    assert killer.deaths >= 5
    assert nothing_left(killer.pids, tmp_path)
