"""The ratios of a report as a picture. Needs matplotlib (the `bench` extra)."""

from __future__ import annotations

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from warmlane.bench.report import JsonEstimate, JsonMetric, Report
from warmlane.bench.stats import Verdict
from warmlane.errors import BenchError

_COLOURS = {Verdict.MET: "tab:green", Verdict.UNDECIDED: "tab:orange", Verdict.MISSED: "tab:red", None: "tab:gray"}


def save_plot(report: Report, path: Path) -> None:
    """Draw each ratio with its interval and its bound, a row each, and write a file of the kind the suffix says.

    Raises `BenchError` if there is no ratio to draw, or the file cannot be written.
    """
    rows = [
        (f"{workload.name}: {metric.name}", metric, found)
        for workload in report.workloads
        for metric in workload.metrics
        if metric.better is not None and (found := metric.judged or metric.ratio) is not None and found.low > 0
    ]
    if not rows:
        raise BenchError("There is no ratio to plot: give a peer.")
    figure = Figure(figsize=(9, 1.2 + 0.34 * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    for height, (_, metric, found) in enumerate(rows):
        _draw(axes, height, metric, found)
    axes.set_yticks(range(len(rows)), [label for label, _, _ in rows])
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("")
    axes.axvline(1, color="black", linewidth=0.6)
    axes.grid(visible=True, axis="x", which="both", alpha=0.25)
    axes.set_xlabel("ours ÷ peer (of a bound on itself: our value), 90 % interval; the bar is the bound")
    axes.set_title(f"{report.n_pairs} interleaved pairs, seed {report.seed}", fontsize="medium")
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise BenchError(f"The plot cannot be written to {path}: {error}.") from None


def _draw(axes: Axes, height: int, metric: JsonMetric, found: JsonEstimate) -> None:
    colour = _COLOURS[metric.bound.verdict if metric.bound else None]
    reach = [[found.median - found.low], [found.high - found.median]]
    axes.errorbar([found.median], [height], xerr=reach, fmt="o", color=colour, capsize=3)
    if metric.bound is not None:
        axes.plot([metric.bound.value], [height], marker="|", markersize=16, color="black")
