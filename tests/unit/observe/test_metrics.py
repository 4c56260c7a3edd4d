"""The names and labels a scrape sees."""

from __future__ import annotations

from prometheus_client import generate_latest

from warmlane.observe import Metrics, ModelNumbers


def numbers(**changed: object) -> ModelNumbers:
    values: dict[str, object] = {
        "model": "m",
        "ready": True,
        "generation": 2,
        "restarts": 1,
        "active": 3,
        "waiting": 4,
        "permits": 5,
        "capacity": 8,
        "warm": 6,
        "hits": 7,
        "misses": {"expired": 1, "busy": 2},
        "evictions": 9,
        "disposals_owed": 10,
    }
    return ModelNumbers(**(values | changed))  # type: ignore[arg-type]


def test_every_number_is_scraped_under_its_name() -> None:
    metrics = Metrics()
    metrics.watch(lambda: [numbers()])
    scraped = generate_latest(metrics.registry).decode()
    for line in (
        'warmlane_lane_active{model="m"} 3.0',
        'warmlane_lane_waiting{model="m"} 4.0',
        'warmlane_lane_permits{model="m"} 5.0',
        'warmlane_lane_capacity{model="m"} 8.0',
        'warmlane_sessions_warm{model="m"} 6.0',
        'warmlane_sessions_hits_total{model="m"} 7.0',
        'warmlane_sessions_misses_total{model="m",reason="busy"} 2.0',
        'warmlane_sessions_evictions_total{model="m"} 9.0',
        'warmlane_sessions_disposals_owed{model="m"} 10.0',
        'warmlane_engine_ready{model="m"} 1.0',
        'warmlane_engine_generation{model="m"} 2.0',
        'warmlane_engine_restarts_total{model="m"} 1.0',
    ):
        assert line in scraped


def test_a_scrape_reads_the_present() -> None:
    metrics, current = Metrics(), [numbers(active=1)]
    metrics.watch(lambda: current)
    assert 'warmlane_lane_active{model="m"} 1.0' in generate_latest(metrics.registry).decode()
    current[0] = numbers(active=0)
    assert 'warmlane_lane_active{model="m"} 0.0' in generate_latest(metrics.registry).decode()


def test_refusals_and_waits_are_counted_per_model() -> None:
    metrics = Metrics()
    metrics.refusals.labels("m", "lane").inc()
    metrics.queue_wait_s.labels("m").observe(0.2)
    scraped = generate_latest(metrics.registry).decode()
    assert 'warmlane_admission_refusals_total{model="m",scope="lane"} 1.0' in scraped
    assert 'warmlane_queue_wait_seconds_bucket{le="0.25",model="m"} 1.0' in scraped
