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


def test_a_kernel_that_does_not_count_is_not_one_from_which_nothing_is_stolen(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  0 0 0 0 0 0 0 0 0 0\n")

    assert StolenTime(stat).share() is None


def test_a_file_that_is_gone_by_then_is_no_failure(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text("cpu  100 0 50 800 10 0 5 35 7 0\n")
    stolen = StolenTime(stat)

    stat.unlink()

    assert stolen.share() is None


@pytest.mark.parametrize("text", [None, "", "intr 5\n", "cpu  100 0 50 800\n", "cpu  a b c d e f g h\n"])
def test_a_kernel_that_does_not_say_is_no_failure(tmp_path: Path, text: str | None) -> None:
    stat = tmp_path / "stat"
    if text is not None:
        stat.write_text(text)

    assert StolenTime(stat).share() is None
