"""What a run found: as data for machines, as a table for people."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

import msgspec

from warmlane.bench.run import Outcome, Plan
from warmlane.bench.stats import Better, Estimate, Verdict, estimate, judge
from warmlane.bench.workload import Against, Metric, Sample, Side

MIN_PAIRS = 5
"""Fewer decide nothing: their interval is too narrow for what one pair differs from the next."""

WORTH_SAYING = 0.01
"""The table tells of stolen time if it was this share of a sample at least: it moves a busy run's time by as much."""


class JsonEstimate(msgspec.Struct, frozen=True):
    """A median and its 90 % bootstrap interval."""

    median: float
    low: float
    high: float


class JsonBound(msgspec.Struct, frozen=True, kw_only=True):
    """`on` is `peer` (the ratio of our value to the peer's) or `itself` (our value). `verdict` is null where there was
    nothing to judge it by, or fewer than `MIN_PAIRS` of it."""

    value: float
    on: Against
    verdict: Verdict | None


class JsonMetric(msgspec.Struct, frozen=True, kw_only=True):
    """`ours` and `peer` hold a value a pair. `ratio` is of ours to the peer's, pair by pair."""

    name: str
    unit: str
    better: Better | None
    ours: tuple[float, ...]
    peer: tuple[float, ...]
    ours_median: float | None
    peer_median: float | None
    ratio: JsonEstimate | None
    bound: JsonBound | None
    judged: JsonEstimate | None


class JsonWorkload(msgspec.Struct, frozen=True, kw_only=True):
    """`stolen_ours` and `stolen_peer` are the shares of all processors' time that the host of the bench's own machine
    kept, a sample each, from 0 to 1; empty where the kernel does not count."""

    name: str
    metrics: tuple[JsonMetric, ...]
    stolen_ours: tuple[float, ...]
    stolen_peer: tuple[float, ...]
    notes: tuple[str, ...]
    failure: str | None
    peer_failure: str | None


class JsonServer(msgspec.Struct, frozen=True):
    base_url: str
    model: str


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """One run. `version` is that of Warmlane's bench, whatever server `ours` is."""

    version: str
    seed: int
    n_pairs: int
    n_cores: int
    ours: JsonServer
    peer: JsonServer | None
    workloads: tuple[JsonWorkload, ...]

    @property
    def missed(self) -> tuple[str, ...]:
        """The bounds that were missed, as `workload: metric`."""
        return tuple(
            f"{workload.name}: {metric.name}"
            for workload in self.workloads
            for metric in workload.metrics
            if metric.bound and metric.bound.verdict is Verdict.MISSED
        )

    @property
    def failed(self) -> tuple[str, ...]:
        """The workloads that could not be measured."""
        return tuple(workload.name for workload in self.workloads if workload.failure or workload.peer_failure)

    def to_json(self) -> bytes:
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"


def make_report(plan: Plan, outcomes: Sequence[Outcome], *, version: str, n_cores: int) -> Report:
    return Report(
        version=version,
        seed=plan.seed,
        n_pairs=plan.n_pairs,
        n_cores=n_cores,
        ours=_server(plan.ours),
        peer=_server(plan.peer) if plan.peer else None,
        workloads=tuple(
            JsonWorkload(
                name=outcome.workload.name,
                metrics=tuple(_metric(metric, outcome, plan.seed) for metric in outcome.workload.metrics),
                stolen_ours=_stolen(outcome.ours),
                stolen_peer=_stolen(outcome.peer),
                notes=_notes(outcome),
                failure=outcome.failure,
                peer_failure=outcome.peer_failure,
            )
            for outcome in outcomes
        ),
    )


def table(report: Report) -> Iterator[str]:
    """The lines of a table of 120 columns, the notes below it."""
    yield _columns("workload", "metric", "ours", "peer", "ratio [90 % interval]", "bound", "verdict")
    for workload in report.workloads:
        if workload.failure is not None:
            yield f"{workload.name:<12} failed: {workload.failure}"
            continue
        for metric in workload.metrics:
            yield _row(workload.name, metric)
    for workload in report.workloads:
        if workload.peer_failure is not None:
            yield f"{workload.name}: the peer failed: {workload.peer_failure}"
        for note in workload.notes:
            yield f"{workload.name}: {note}"
        if max(workload.stolen_ours + workload.stolen_peer, default=0.0) >= WORTH_SAYING:
            yield f"{workload.name}: {_told(workload)}"


def _row(workload: str, metric: JsonMetric) -> str:
    name = f"{metric.name}, {metric.unit}" if metric.unit else metric.name
    bound, verdict = "", ""
    if metric.bound is not None:
        sign = "≤" if metric.better is Better.LOWER else "≥"
        of = " of peer" if metric.bound.on is Against.PEER else f" {metric.unit}".rstrip()
        bound = f"{sign} {metric.bound.value:g}{of}"
        verdict = metric.bound.verdict or ("too few pairs" if metric.judged else "no peer")
    ratio = metric.judged or metric.ratio
    shown = f"{ratio.median:.3g} [{ratio.low:.3g}, {ratio.high:.3g}]" if ratio else ""
    ours, peer = _number(metric.ours_median), _number(metric.peer_median)
    return _columns(workload, name, ours, peer, shown, bound, verdict)


def _columns(workload: str, metric: str, ours: str, peer: str, ratio: str, bound: str, verdict: str) -> str:
    return f"{workload:<12} {metric:<24} {ours:>8} {peer:>8}  {ratio:<24} {bound:<17} {verdict}".rstrip()


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.0f}" if value >= 1000 else f"{value:.3g}"


def _metric(metric: Metric, outcome: Outcome, seed: int) -> JsonMetric:
    ours, peer = _values(metric, outcome.ours), _values(metric, outcome.peer)
    pairs = zip(ours, peer, strict=True) if len(ours) == len(peer) else ()
    ratios = [mine / theirs for mine, theirs in pairs if theirs > 0]
    ratio = estimate(ratios, seed=seed) if ratios else None
    judged = ratio if metric.against is Against.PEER else (estimate(ours, seed=seed) if ours else None)
    bound = None
    if metric.bound is not None:
        enough = len(ours if metric.against is Against.ITSELF else ratios) >= MIN_PAIRS
        verdict = judge(judged, metric.bound, metric.better) if judged and metric.better and enough else None
        bound = JsonBound(value=metric.bound, on=metric.against, verdict=verdict)
    return JsonMetric(
        name=metric.name,
        unit=metric.unit,
        better=metric.better,
        ours=ours,
        peer=peer,
        ours_median=statistics.median(ours) if ours else None,
        peer_median=statistics.median(peer) if peer else None,
        ratio=_json(ratio),
        bound=bound,
        judged=_json(judged) if bound else None,
    )


def _json(found: Estimate | None) -> JsonEstimate | None:
    return None if found is None else JsonEstimate(found.median, found.low, found.high)


def _values(metric: Metric, samples: Sequence[Sample]) -> tuple[float, ...]:
    return tuple(sample.values[metric.name] for sample in samples if metric.name in sample.values)


def _stolen(samples: Sequence[Sample]) -> tuple[float, ...]:
    return tuple(sample.stolen for sample in samples if sample.stolen is not None)


def _told(workload: JsonWorkload) -> str:
    sides = (("ours", workload.stolen_ours), ("peer", workload.stolen_peer))
    told = [f"{100 * statistics.median(s):.1f} % ({name}; {100 * max(s):.1f} % at most)" for name, s in sides if s]
    return f"the machine's host kept {' and '.join(told)} of the processors' time"


def _notes(outcome: Outcome) -> tuple[str, ...]:
    """Each thing said once, in the order it was first said."""
    return tuple(dict.fromkeys(note for sample in (*outcome.ours, *outcome.peer) for note in sample.notes))


def _server(side: Side) -> JsonServer:
    return JsonServer(side.client.target.base_url, side.client.target.model)
