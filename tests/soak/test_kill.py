"""kill -9 in the middle of twenty turns, again and again on one store. `WARMLANE_SOAK_KILLS` sets how often (10)."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from support.killing import Seen, check_kept, killed_midway

pytestmark = [pytest.mark.live, pytest.mark.timeout(7200)]
KILLS = int(os.environ.get("WARMLANE_SOAK_KILLS", "10"))


async def test_many_kills_lose_nothing(tmp_path: Path) -> None:
    store, all_seen, chance = tmp_path / "responses.db", Seen(), random.Random(7)
    for _ in range(KILLS):
        seen = await killed_midway(store, turns=20, kill_after=chance.randint(1, 60))
        all_seen.begun |= seen.begun
        all_seen.ended |= seen.ended
        check_kept(store, all_seen)
