"""The engine's property tests, many times over: `WARMLANE_SOAK_SCRIPTS` scripts and half as many machines (2,000)."""

from __future__ import annotations

import os

import pytest

from unit.engine.test_scheduler_property import scripts_are_played
from unit.engine.test_tiers_property import engines_come_and_go

pytestmark = pytest.mark.timeout(7200)

N_SCRIPTS = int(os.environ.get("WARMLANE_SOAK_SCRIPTS", "2000"))


RARE = ("LET_GO", "CANCELLED", "TOO_LONG", "hits")
RARE_BELOW = ("left_bit_by_bit", "restore_failures", "disk_write_errors", "disk_damaged", "ram_evictions", "HIT")


def test_every_turn_says_what_it_says_alone() -> None:
    tally = scripts_are_played(N_SCRIPTS)
    assert tally["preemptions"] >= 0.2 * N_SCRIPTS, tally
    assert all(tally[what] >= 0.01 * N_SCRIPTS for what in RARE), tally


def test_every_turn_says_what_it_says_alone_whatever_tier_its_cells_were_in() -> None:
    n_machines = N_SCRIPTS // 2
    tally = engines_come_and_go(n_machines)
    assert tally["preemptions"] >= 0.5 * n_machines, tally
    assert all(tally[what] >= 0.01 * n_machines for what in RARE_BELOW), tally
