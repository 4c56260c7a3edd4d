"""What Prometheus is told. Gauges and counts are read from their owners at each scrape, so they can not drift."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

QUEUE_WAIT_BUCKETS_S = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
TTFT_BUCKETS_S = (0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelNumbers:
    """The counts of one model's lane and registry at one instant."""

    model: str
    ready: bool
    generation: int
    restarts: int
    active: int
    waiting: int
    permits: int
    capacity: int
    warm: int
    hits: int
    misses: Mapping[str, int]
    evictions: int
    disposals_owed: int


@dataclass(frozen=True, slots=True)
class EngineReading:
    """An engine's statistics by name, as numbers of one instant."""

    model: str
    values: Mapping[str, float]


class _EngineCollector(Collector):
    """Each statistic is a gauge `warmlane_engine_NAME`: a restarted worker counts from 0 again."""

    def __init__(self, source: Callable[[], Iterable[EngineReading]]) -> None:
        self._source = source

    def collect(self) -> Iterator[Metric]:
        gauges: dict[str, GaugeMetricFamily] = {}
        for reading in self._source():
            for name, value in reading.values.items():
                full = f"warmlane_engine_{name}"
                gauge = gauges.setdefault(full, GaugeMetricFamily(full, "Of the worker that runs.", labels=["model"]))
                gauge.add_metric([reading.model], float(value))
        yield from gauges.values()


class _ModelCollector(Collector):
    def __init__(self, source: Callable[[], Iterable[ModelNumbers]]) -> None:
        self._source = source

    def collect(self) -> Iterator[Metric]:
        models = list(self._source())
        for field, help_text in _GAUGES.items():
            gauge = GaugeMetricFamily(f"warmlane_{field}", help_text, labels=["model"])
            for numbers in models:
                gauge.add_metric([numbers.model], float(getattr(numbers, field.split("_", 1)[1])))
            yield gauge
        for field, help_text in _COUNTS.items():
            count = CounterMetricFamily(f"warmlane_{field}", help_text, labels=["model"])
            for numbers in models:
                count.add_metric([numbers.model], float(getattr(numbers, field.split("_", 1)[1])))
            yield count
        misses = CounterMetricFamily(
            "warmlane_sessions_misses", "Look-ups that leased no warm session, by cause.", labels=["model", "reason"]
        )
        for numbers in models:
            for reason, n in numbers.misses.items():
                misses.add_metric([numbers.model, reason], float(n))
        yield misses


_GAUGES = {
    "lane_active": "Turns that hold a seat.",
    "lane_waiting": "Turns that wait for a seat.",
    "lane_permits": "Requests admitted and not yet in the lane.",
    "lane_capacity": "Seats.",
    "sessions_warm": "Warm sessions held for their next turn.",
    "sessions_disposals_owed": "Disposals that failed and will be retried.",
    "engine_ready": "Whether the worker can take a turn.",
    "engine_generation": "How many workers this model has had.",
}
_COUNTS = {
    "sessions_hits": "Look-ups that leased a warm session.",
    "sessions_evictions": "Warm sessions given up before they were asked for.",
    "engine_restarts": "Workers started in the place of one that died.",
}


class Metrics:
    """One server's metrics, in a registry of its own."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry if registry is not None else CollectorRegistry()
        self.refusals = Counter(
            "warmlane_admission_refusals",
            "Requests refused because the budget was spent.",
            ["model", "scope"],
            registry=self.registry,
        )
        self.queue_wait_s = Histogram(
            "warmlane_queue_wait_seconds",
            "From entering the lane to holding a seat.",
            ["model"],
            buckets=QUEUE_WAIT_BUCKETS_S,
            registry=self.registry,
        )
        self.prefill_s = Histogram(
            "warmlane_prefill_seconds",
            "From placing a prompt to its first token.",
            ["model"],
            buckets=TTFT_BUCKETS_S,
            registry=self.registry,
        )
        self.turns = Counter(
            "warmlane_turns",
            "Turns that ended, by dialect and how.",
            ["model", "dialect", "end"],
            registry=self.registry,
        )
        self.tokens = Counter(
            "warmlane_tokens",
            "Tokens of finished turns: prompt (cached and prefilled apart) and output.",
            ["model", "kind"],
            registry=self.registry,
        )

    def watch(self, source: Callable[[], Iterable[ModelNumbers]]) -> None:
        """Report the models of `source` at every scrape."""
        self.registry.register(_ModelCollector(source))

    def watch_engines(self, source: Callable[[], Iterable[EngineReading]]) -> None:
        """Report the engines of `source` at every scrape."""
        self.registry.register(_EngineCollector(source))
