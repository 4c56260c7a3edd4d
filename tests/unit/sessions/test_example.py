"""The example of docs/sessions.md runs and shows what the page says."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "embed_sessions.py"


def test_the_embedding_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["no_key", "hit", "history_diverged"]
    assert "13 of  24 prompt tokens warm: HOW ARE YOU!" in lines[1]
    assert lines[3].startswith("The queue is full: 0 waiting + 4 permits = 4, limit 2")
    assert lines[4] == "['r2', 'r3']"
