"""Chaining at the terminal event for long. `WARMLANE_SOAK_ROUNDS` sets how many rounds on each engine (500)."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from support.chaining import chained_rounds
from support.server import live_server

pytestmark = [pytest.mark.live, pytest.mark.timeout(7200)]
ROUNDS = int(os.environ.get("WARMLANE_SOAK_ROUNDS", "500"))


@pytest.mark.parametrize("flags", [(), ("--flat",)], ids=["paged", "flat"])
@pytest.mark.parametrize("leaves", [False, True], ids=["stays", "leaves"])
async def test_chaining_the_instant_the_terminal_event_arrives_always_hits(
    flags: tuple[str, ...], leaves: bool
) -> None:
    with live_server("--engine", "simulated", *flags) as server:
        outcomes = Counter(await chained_rounds(server.base_url, "simulated", rounds=ROUNDS, leaves=leaves))
    assert outcomes == {"hit": ROUNDS}
