"""From samples to ratios, verdicts, a table, JSON and a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from support.bench import ScriptedWorkload, chat_stream, client_of
from warmlane.bench.report import JsonEstimate, Report, make_report, table
from warmlane.bench.run import Outcome, Plan
from warmlane.bench.stats import Better, Verdict
from warmlane.bench.workload import Against, Metric, Sample, Side
from warmlane.errors import BenchError


async def report_of(*outcomes: Outcome, peer: bool = True) -> Report:
    async with client_of(lambda _: chat_stream()) as client:
        side = Side(name="peer", client=client) if peer else None
        plan = Plan(workloads=(), ours=Side(name="ours", client=client), peer=side, n_pairs=3, seed=1)
        return make_report(plan, outcomes, version="0", n_cores=2)


def outcome(metric: Metric, ours: Sequence[float], peer: Sequence[float] = ()) -> Outcome:
    workload = ScriptedWorkload({}, metrics=(metric,))
    return Outcome(
        workload,
        tuple(Sample({metric.name: value}, ("same note",)) for value in ours),
        tuple(Sample({metric.name: value}) for value in peer),
    )


TIME = Metric(name="t", unit="s", better=Better.LOWER, bound=1.0)
SHARE = Metric(name="share", unit="%", better=Better.HIGHER, bound=99.0, against=Against.ITSELF)


async def test_the_ratio_is_the_median_of_the_pairs_ratios() -> None:
    report = await report_of(outcome(TIME, [1.0, 4.0, 3.0, 1.5, 1.5], [2.0, 2.0, 4.0, 2.0, 2.0]))

    metric = report.workloads[0].metrics[0]
    assert (metric.ours_median, metric.peer_median) == (1.5, 2.0)
    assert metric.ratio is not None
    assert (metric.ratio.median, metric.ratio.low, metric.ratio.high) == (0.75, 0.5, 2.0)
    assert metric.bound is not None
    assert metric.bound.verdict is Verdict.MET
    assert report.missed == ()


async def test_time_that_the_host_kept_is_told_where_it_matters() -> None:
    workload = ScriptedWorkload({}, metrics=(TIME,))
    quiet = Outcome(workload, (Sample({"t": 1.0}, stolen=0.0),), (Sample({"t": 1.0}, stolen=0.004),))
    busy = Outcome(workload, (Sample({"t": 1.0}, stolen=0.02),), (Sample({"t": 1.0}), Sample({"t": 1.0}, stolen=0.1)))

    report = await report_of(quiet, busy)

    assert [w.stolen_ours for w in report.workloads] == [(0.0,), (0.02,)]
    assert [w.stolen_peer for w in report.workloads] == [(0.004,), (0.1,)]
    told = [line for line in table(report) if "host kept" in line]
    assert told == [
        "scripted: the machine's host kept 2.0 % (ours; 2.0 % at most) and 10.0 % (peer; 10.0 % at most)"
        " of the processors' time"
    ]


async def test_a_missed_bound_is_listed() -> None:
    report = await report_of(outcome(TIME, [3.0] * 5, [2.0] * 5), outcome(SHARE, [90.0, 91.0, 92.0, 90.0, 91.0]))

    assert report.missed == ("scripted: t", "scripted: share")


async def test_a_bound_on_itself_needs_no_peer_and_one_on_the_ratio_does() -> None:
    report = await report_of(outcome(SHARE, [99.5, 99.6, 99.7, 99.6, 99.6]), outcome(TIME, [1.0]), peer=False)

    share, time = (workload.metrics[0] for workload in report.workloads)
    assert share.judged == JsonEstimate(99.6, 99.5, 99.7)
    assert share.bound is not None
    assert share.bound.verdict is Verdict.MET
    assert time.bound is not None
    assert time.bound.verdict is None
    assert any("no peer" in line for line in table(report))


async def test_what_only_one_side_has_makes_no_ratio() -> None:
    report = await report_of(outcome(TIME, [1.0, 1.0], [1.0]))

    assert report.workloads[0].metrics[0].ratio is None


async def test_the_table_has_a_row_a_metric_and_each_note_once() -> None:
    failed = Outcome(ScriptedWorkload({}, name="other"), failure="it broke")
    report = await report_of(outcome(TIME, [1.0, 2.0, 3.0, 1.0, 2.0], [2.0] * 5), failed)

    lines = list(table(report))

    assert len(lines) == 4
    assert lines[1].split() == ["scripted", "t,", "s", "2", "2", "1", "[0.5,", "1.5]", "≤", "1", "of", "peer", "met"]
    assert lines[2] == "other        failed: it broke"
    assert lines[3] == "scripted: same note"
    assert report.failed == ("other",)


async def test_a_failed_peer_is_told() -> None:
    lone = Outcome(ScriptedWorkload({}), (Sample({"t": 1.0}),), peer_failure="it refused")
    report = await report_of(lone)

    assert list(table(report))[-1] == "scripted: the peer failed: it refused"
    assert report.failed == ("scripted",)


async def test_the_json_reads_back() -> None:
    report = await report_of(outcome(TIME, [1.0, 2.0, 3.0], [2.0, 2.0, 2.0]))

    assert msgspec.json.decode(report.to_json(), type=Report) == report
    assert b"secret" not in report.to_json()


async def test_the_plot_is_a_picture(tmp_path: Path) -> None:
    save_plot = pytest.importorskip("warmlane.bench.plot", exc_type=ImportError).save_plot
    report = await report_of(outcome(TIME, [1.0, 2.0, 3.0], [2.0, 2.0, 2.0]), outcome(SHARE, [98.0]))

    save_plot(report, tmp_path / "out.png")

    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(BenchError, match="cannot be written"):
        save_plot(report, tmp_path / "out.nonsense")


async def test_nothing_to_plot_is_told(tmp_path: Path) -> None:
    save_plot = pytest.importorskip("warmlane.bench.plot", exc_type=ImportError).save_plot
    report = await report_of(outcome(TIME, [1.0]), peer=False)

    with pytest.raises(BenchError, match="no ratio"):
        save_plot(report, tmp_path / "out.png")


async def test_few_pairs_decide_nothing() -> None:
    report = await report_of(outcome(TIME, [3.0] * 4, [2.0] * 4))

    bound = report.workloads[0].metrics[0].bound
    assert bound is not None
    assert bound.verdict is None
    assert "too few pairs" in list(table(report))[1]
    assert report.missed == ()
