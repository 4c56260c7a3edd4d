"""The live probe of `canitoolcall` against a live server, in a format of each family that its fixtures know."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from canitoolcall.probe import EQUIVALENCE_CHECK

from support.server import LiveServer, environment, live_server
from support.tool_probe import MODEL, N_ROWS, probed, problems

pytestmark = pytest.mark.live
FAMILIES = ("deepseek", "gemma4", "glm", "gpt-oss", "kimi", "llama", "mistral", "qwen3-hermes", "qwen3-xml")
LEFT_TO_THE_MODEL = {
    "single-call",
    "parallel-calls",
    "nested-args",
    "unicode-args",
    "empty-args",
    "reasoning-then-call",
}


@pytest.mark.parametrize("name", FAMILIES)
def test_every_scenario_passes_in_every_family(name: str) -> None:
    with live_server("--engine", "simulated", "--format", name) as server:
        report = probed(server, name)
    assert not problems(report)
    assert report.summary() == {"pass": N_ROWS, "fail": 0, "error": 0, "skip": 0}


def test_the_command_as_it_is_finds_fault_with_the_model_alone(paged_server: LiveServer) -> None:
    """A model that only echoes makes no call of its own accord; all else passes."""
    command = [sys.executable, "-m", "canitoolcall", "probe", "--model", MODEL, "--json", "-"]
    command += ["--base-url", f"{paged_server.base_url}/v1"]
    ended = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=100, check=False)
    report = json.loads(ended.stdout)
    for row in report["outcomes"]:
        told = f"{row['scenario_id']} {row['check']}: {row['detail']}"
        if row["check"] != EQUIVALENCE_CHECK and row["scenario_id"] in LEFT_TO_THE_MODEL:
            assert row["status"] == "fail", told
            assert row["detail"].startswith("expected at least"), told
        else:
            assert row["status"] == "pass", told
        assert not row["warnings"], told
    assert report["summary"]["pass"] == N_ROWS - 2 * len(LEFT_TO_THE_MODEL)
