"""The live probe of `canitoolcall`, as in the contract tests, in every format there is."""

from __future__ import annotations

import pytest

from support.server import live_server
from support.tool_probe import N_ROWS, probed, problems
from warmlane.prompts.formats.families import format_names

pytestmark = pytest.mark.live


@pytest.mark.parametrize("name", format_names())
def test_every_scenario_passes_in_every_format(name: str) -> None:
    with live_server("--engine", "simulated", "--format", name) as server:
        report = probed(server, name)
    assert not problems(report)
    assert report.summary() == {"pass": N_ROWS, "fail": 0, "error": 0, "skip": 0}
