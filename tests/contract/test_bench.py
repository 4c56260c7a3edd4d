"""Every workload of the bench, tiny, against a live server on the simulated engine."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from support.server import LiveServer, environment
from warmlane.bench.agent import Agent
from warmlane.bench.agent_script import AgentSizes
from warmlane.bench.client import BenchClient, Target
from warmlane.bench.loads import Intrude, Overload
from warmlane.bench.overhead import Overhead
from warmlane.bench.restart import Restart
from warmlane.bench.servers import warmlane_launcher
from warmlane.bench.single import Decode, SingleCold, SingleWarm
from warmlane.bench.together import Aggregate, Share
from warmlane.bench.workload import Sample, Side, Workload
from warmlane.engine.config import EngineConfig, EngineKind

pytestmark = pytest.mark.live

SIMULATED = EngineConfig(kind=EngineKind.SIMULATED, n_ctx=16384)
LAUNCHER = warmlane_launcher("--engine", "simulated")


@pytest.fixture
async def side(paged_server: LiveServer) -> AsyncIterator[Side]:
    async with BenchClient.connect(Target(paged_server.base_url)) as client:
        yield Side(name="ours", client=client)


async def sample_of(workload: Workload, side: Side) -> dict[str, float]:
    sample: Sample = await workload.run(side, random.Random(1))
    assert set(sample.values) == {metric.name for metric in workload.metrics}
    return dict(sample.values)


async def test_one_conversation(side: Side) -> None:
    cold = await sample_of(SingleCold(n_words=20, max_tokens=4), side)
    warm = await sample_of(SingleWarm(n_words=20, max_tokens=4), side)
    decode = await sample_of(Decode(n_words=20, max_tokens=32, n_tokens=50), side)

    assert side.client.target.model == "simulated", "the first model listed"
    assert cold["ttft"] > 0
    assert cold["prompt"] > 100
    assert warm["reused"] > 50
    assert decode["decoded"] == 62
    assert decode["speed"] > 0


async def test_conversations_at_once(side: Side) -> None:
    together = await sample_of(Aggregate(n_chats=3, max_tokens=8), side)
    share = await sample_of(Share(n_conversations=4, n_words=30, max_tokens=4, in_flight=2), side)

    assert together["decoded"] == 24
    assert share["turn 1 reused"] > 70
    assert share["turn 0 ttft p90"] <= share["wall"]


async def test_an_agents_session(side: Side) -> None:
    sizes = AgentSizes(n_calls=9, system_words=10, result_words=3, description_words=1, title_every=4)

    found = await sample_of(Agent(sizes=sizes), side)

    assert found["calls"] == 9
    assert 0 <= found["reused of reusable"] <= 100
    assert found["reused of prompts"] > 50


async def test_an_agents_session_ends_before_its_limit(side: Side) -> None:
    sizes = AgentSizes(n_calls=40, system_words=10, result_words=3, description_words=1, limit_tokens=4000)

    found = await sample_of(Agent(sizes=sizes), side)

    assert 1 < found["calls"] < 40
    assert found["last prompt"] <= 4000


async def test_a_burst_on_a_server_with_a_small_budget(side: Side) -> None:
    async with LAUNCHER.start(*LAUNCHER.small_flags) as server, BenchClient.connect(Target(server.base_url)) as client:
        small = Side(name="ours", client=client, launcher=LAUNCHER)
        found = await sample_of(Overload(n_arrivals=60, max_tokens=64), small)

    assert found["served"] >= 1
    assert found["served"] + found["refused"] == 60
    assert found["broken off"] == 0


async def test_a_newcomer_among_streams(side: Side) -> None:
    found = await sample_of(Intrude(n_streams=2, n_words=300, undisturbed_pieces=4, max_tokens=200), side)

    assert found["newcomer alone"] > 0
    assert found["gap p99"] > 0


async def test_a_conversation_over_a_restart(side: Side) -> None:
    found = await sample_of(Restart(n_words=50, max_tokens=4), replace(side, launcher=LAUNCHER))

    assert found["cold by restarted"] > 0


async def test_the_bare_engine(side: Side) -> None:
    found = await sample_of(Overhead(config=SIMULATED, n_chats=3, n_words=20, max_tokens=8), side)

    assert found["decoded"] == 24
    assert found["bare"] > 0


def test_the_command_measures_a_server_against_a_peer(paged_server: LiveServer, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    command = [sys.executable, "-m", "warmlane", "bench", "single-cold", "agg8", "--base", paged_server.base_url]
    command += ["--peer", paged_server.base_url, "--pairs", "2", "--seed", "5", "--json", str(out)]

    done = subprocess.run(command, capture_output=True, text=True, timeout=100, env=environment(), check=False)

    assert done.returncode == 0, done.stderr
    assert "agg8         throughput, tok/s" in done.stdout
    report = json.loads(out.read_text())
    assert (report["seed"], report["n_pairs"]) == (5, 2)
    assert [workload["name"] for workload in report["workloads"]] == ["single-cold", "agg8"]
    assert all(len(metric["ours"]) == len(metric["peer"]) == 2 for w in report["workloads"] for metric in w["metrics"])


def test_the_command_starts_the_server_it_measures() -> None:
    command = [sys.executable, "-m", "warmlane", "bench", "agg8", "--start", "--pairs", "1"]
    simulated = environment() | {"WARMLANE_ENGINE": "simulated"}

    done = subprocess.run(command, capture_output=True, text=True, timeout=100, env=simulated, check=False)

    assert done.returncode == 0, done.stderr
    assert "no peer" in done.stdout


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_bench_that_is_stopped_stops_what_it_started(number: signal.Signals) -> None:
    # Tests that run in a shell's background have it ignored, which children inherit.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    command = [sys.executable, "-m", "warmlane", "bench", "share12", "--start", "--pairs", "50"]
    bench = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=environment() | {"WARMLANE_ENGINE": "simulated"}
    )
    try:
        assert bench.stderr is not None
        line = next(line for line in bench.stderr if line.startswith("warming up ours: "))
        url = line.split()[3].rstrip(",")
        assert httpx.get(f"{url}/ready").status_code == 200

        bench.send_signal(number)

        assert bench.wait(60) == 128 + number
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"{url}/ready")
    finally:
        bench.kill()
        bench.communicate()
