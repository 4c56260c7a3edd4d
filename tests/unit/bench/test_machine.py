"""The time that a host keeps from its virtual machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from warmlane.bench.machine import StolenTime


def test_the_share_is_of_all_processors_time_since_the_start(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  100 0 50 800 10 0 5 35 7 0\ncpu0 1 2 3 4 5 6 7 8\n")
    stolen = StolenTime(stat)

    stat.write_text("cpu  160 0 60 815 10 0 5 50 9 0\ncpu0 1 2 3 4 5 6 7 8\n")

    assert stolen.share() == 15 / 100


def test_no_time_is_no_share(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  100 0 50 800 10 0 5 35 7 0\n")

    assert StolenTime(stat).share() == 0.0


@pytest.mark.parametrize("text", [None, "", "intr 5\n", "cpu  100 0 50 800\n"])
def test_a_kernel_that_does_not_say_is_no_failure(tmp_path: Path, text: str | None) -> None:
    stat = tmp_path / "stat"
    if text is not None:
        stat.write_text(text)

    assert StolenTime(stat).share() is None
