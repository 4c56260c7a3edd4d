"""The shared wire checker, run against a live server where it is at hand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.server import LiveServer

pytestmark = pytest.mark.live
CHECKER = Path(__file__).parents[3] / "shared" / "tools" / "wire_check.py"


def test_the_wire_checker_finds_nothing(server: LiveServer) -> None:
    if not CHECKER.is_file():
        pytest.skip(f"SKIPPED LOUDLY: the wire checker is not at {CHECKER.relative_to(CHECKER.parents[2])}")
    done = subprocess.run(
        [sys.executable, str(CHECKER), server.base_url, "--model", "simulated"],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
