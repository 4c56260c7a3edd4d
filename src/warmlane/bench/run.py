"""A run: each workload on both servers by turns, pair after pair."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from warmlane.bench.client import BenchClient, Said
from warmlane.bench.text import opening
from warmlane.bench.workload import Sample, Side, Workload
from warmlane.errors import BenchError

Tell = Callable[[str], None]

WARM_UP_WORDS = 200
WARM_UP_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one workload: the samples of each side, pair by pair (`peer` is empty without one), or `failure`,
    why it has none."""

    workload: Workload
    ours: tuple[Sample, ...] = ()
    peer: tuple[Sample, ...] = ()
    failure: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to run. Both sides of a pair get the same prompts, and no two pairs do: both follow from `seed`."""

    workloads: Sequence[Workload]
    ours: Side
    peer: Side | None
    n_pairs: int
    seed: int


async def run(plan: Plan, tell: Tell) -> list[Outcome]:
    """All workloads, in order; `tell` gets a line of progress now and then. A workload that fails does not keep the
    others from being run. Raises `BenchError` if a server does not even answer the warm-up."""
    for side in (plan.ours, plan.peer):
        if side is not None:
            tell(f"warming up {side.name}: {side.client.target.base_url}, model {side.client.target.model}")
            await warm_up(side.client)
    return [await _run_workload(plan, workload, tell) for workload in plan.workloads]


async def warm_up(client: BenchClient) -> None:
    """The first request of a process pays for graphs, threads and caches of the allocator."""
    rng = random.Random("warm-up")
    for _ in range(2):
        await client.chat([Said("user", opening(rng, WARM_UP_WORDS))], max_tokens=WARM_UP_TOKENS)


async def _run_workload(plan: Plan, workload: Workload, tell: Tell) -> Outcome:
    peer = None if workload.ours_only else plan.peer
    taken: dict[str, list[Sample]] = {side.name: [] for side in (plan.ours, peer) if side is not None}
    try:
        for pair in range(plan.n_pairs):
            for side in (plan.ours, peer):
                if side is not None:
                    sample = await workload.run(side, random.Random(f"{plan.seed} {workload.name} {pair}"))
                    taken[side.name].append(sample)
                    tell(f"{workload.name}, pair {pair + 1} of {plan.n_pairs}, {side.name}: {_shown(sample)}")
    except BenchError as error:
        tell(f"{workload.name} failed: {error}")
        return Outcome(workload, failure=str(error))
    return Outcome(workload, tuple(taken[plan.ours.name]), tuple(taken[peer.name]) if peer else ())


def _shown(sample: Sample) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in sample.values.items())
