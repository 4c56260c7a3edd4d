"""A conversation that goes on after its server was stopped and started again."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar

from warmlane.bench.client import BenchClient, Said, Target
from warmlane.bench.run import warm_up
from warmlane.bench.stats import Better
from warmlane.bench.text import follow_up, opening
from warmlane.bench.workload import Against, Metric, Sample, Shape, Side
from warmlane.errors import BenchError


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """The first turn of a long prompt is cold; the next comes after SIGTERM and a start with the same store, and the
    same disk cache where the server can have one."""

    name: ClassVar = "restart"
    metrics: ClassVar = (
        Metric(name="cold by restarted", better=Better.HIGHER, bound=10.0, against=Against.ITSELF),
        Metric(name="cold ttft", unit="s", better=Better.LOWER),
        Metric(name="restarted ttft", unit="s", better=Better.LOWER),
        Metric(name="reused", unit="%", better=Better.HIGHER),
        Metric(name="prompt", unit="tok"),
    )
    ours_only: ClassVar = False
    needs_launcher: ClassVar = True
    shape: ClassVar = Shape.LONG

    n_words: int = 3950
    """Some 4k tokens."""
    max_tokens: int = 24

    async def run(self, side: Side, rng: random.Random) -> Sample:
        launcher = side.launcher
        if launcher is None:
            raise BenchError("restart: there is no server that may be stopped.")
        said = [Said("user", opening(rng, self.n_words))]
        async with launcher.start(*launcher.long_flags, *launcher.durable_flags) as server:
            target = Target(server.base_url, side.client.target.model, side.client.target.key)
            async with BenchClient.connect(target) as client:
                await warm_up(client)
                cold = await client.chat(said, max_tokens=self.max_tokens)
                said += [Said("assistant", cold.text), Said("user", follow_up(rng))]
                await server.restart()
                await warm_up(client)
                restarted = await client.chat(said, max_tokens=self.max_tokens)
        values = {
            "cold by restarted": cold.ttft_s / restarted.ttft_s,
            "cold ttft": cold.ttft_s,
            "restarted ttft": restarted.ttft_s,
            "reused": 100 * restarted.cached_tokens / restarted.prompt_tokens,
            "prompt": float(restarted.prompt_tokens),
        }
        notes = () if launcher.durable_flags else (f"{side.name}: it cannot be told to keep what it computed",)
        return Sample(values, notes)
