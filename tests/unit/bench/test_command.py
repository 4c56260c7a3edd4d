"""`warmlane bench`: mistakes are told in one line before anything is started."""

from __future__ import annotations

import os
import shlex

import pytest

from warmlane.bench.catalogue import catalogue
from warmlane.cli.main import main
from warmlane.engine.config import EngineConfig


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in list(os.environ):
        if variable.upper().startswith("WARMLANE_"):
            monkeypatch.delenv(variable)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("", "Give --base URL for a running server, or --start"),
        ("--start --base http://127.0.0.1:9", "give --base and --peer without it"),
        ("--base http://127.0.0.1:9 --peer-bin x", "need --start"),
        ("--start --peer-bin /does/not/exist", "Build it with make peer"),
        ("--base http://127.0.0.1:9 singel-warm", "There is no workload 'singel-warm'. Known: single-cold,"),
        ("--base http://127.0.0.1:9 restart", "restart starts servers of its own"),
        ("--base http://127.0.0.1:9 --pairs 0", "--pairs"),
    ],
)
def test_a_mistake_is_one_line_on_stderr_and_exit_2(
    capsys: pytest.CaptureFixture[str], line: str, complaint: str
) -> None:
    code = main(["bench", *shlex.split(line)])

    out, err = capsys.readouterr()
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("warmlane: ")
    assert complaint in err


def test_a_server_that_is_away_is_exit_1(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["bench", "--base", "http://127.0.0.1:9", "single-warm"])

    assert code == 1
    assert "http://127.0.0.1:9 did not answer" in capsys.readouterr().err


def test_every_workload_has_its_name_and_numbers_once() -> None:
    workloads = catalogue(EngineConfig(), paced=False)

    names = [workload.name for workload in workloads]
    assert names == ("single-cold single-warm decode agg8 share12 agent40 restart overload intrude overhead".split())
    for workload in workloads:
        metrics = [metric.name for metric in workload.metrics]
        assert len(metrics) == len(set(metrics))
        assert all(metric.better is not None for metric in workload.metrics if metric.bound is not None)


def test_a_server_told_to_keep_gaps_short_is_held_to_it() -> None:
    bounds = [[m.bound for m in catalogue(EngineConfig(), paced=paced)[-2].metrics[:2]] for paced in (False, True)]

    assert bounds == [[12.0, 2.0], [4.0, None]]
