"""A run: each workload on both servers by turns, pair after pair."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace

from warmlane.bench.client import BenchClient, Said
from warmlane.bench.machine import StolenTime
from warmlane.bench.text import opening
from warmlane.bench.workload import Sample, Shape, Side, Workload
from warmlane.errors import BenchError

Tell = Callable[[str], None]

WARM_UP_WORDS = 200
WARM_UP_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one workload: the samples of each side, pair by pair (`peer` is empty without one), or why there are
    none."""

    workload: Workload
    ours: tuple[Sample, ...] = ()
    peer: tuple[Sample, ...] = ()
    failure: str | None = None
    peer_failure: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to run. Both sides of a pair get the same prompts, and no two pairs do: both follow from `seed`. After each
    sample there is a pause of `settle_s` seconds: what a server does behind its answers is not to fall into the time of
    the other. `stolen` begins to count what the machine's host keeps."""

    workloads: Sequence[Workload]
    ours: Side
    peer: Side | None
    n_pairs: int
    seed: int
    settle_s: float = 0.0
    stolen: Callable[[], StolenTime] = StolenTime


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
    ours = _Measuring(plan, workload, plan.ours, tell)
    theirs = _Measuring(plan, workload, peer, tell) if peer else None
    async with AsyncExitStack() as opened:
        for measuring in (ours, theirs):
            if measuring is not None:
                await measuring.prepare(opened)
        for pair in range(plan.n_pairs):
            for measuring in (ours, theirs):
                if measuring is not None:
                    await measuring.take(pair)
    return Outcome(
        workload,
        ours=tuple(ours.samples),
        peer=tuple(theirs.samples) if theirs else (),
        failure=ours.failure,
        peer_failure=theirs.failure if theirs else None,
    )


class _Measuring:
    """One side in one workload. A failure ends it, and what was measured till then does not count."""

    def __init__(self, plan: Plan, workload: Workload, side: Side, tell: Tell) -> None:
        self._plan = plan
        self._workload = workload
        self._side = side
        self._tell = tell
        self.samples: list[Sample] = []
        self.failure: str | None = None

    async def prepare(self, opened: AsyncExitStack) -> None:
        """Start a server of the workload's shape where that takes one; it runs until `opened` is closed."""
        try:
            self._side = await _shaped(self._side, self._workload.shape, opened)
        except BenchError as error:
            self._fail(error)

    async def take(self, pair: int) -> None:
        if self.failure is not None:
            return
        name = self._workload.name
        stolen = self._plan.stolen()
        try:
            sample = await self._workload.run(self._side, random.Random(f"{self._plan.seed} {name} {pair}"))
        except BenchError as error:
            self._fail(error)
            return
        sample = replace(sample, stolen=stolen.share())
        await asyncio.sleep(self._plan.settle_s)
        self.samples.append(sample)
        shown = ", ".join(f"{name} {value:.4g}" for name, value in sample.values.items())
        self._tell(f"{name}, pair {pair + 1} of {self._plan.n_pairs}, {self._side.name}: {shown}")

    def _fail(self, error: BenchError) -> None:
        self._tell(f"{self._workload.name}, {self._side.name}, failed: {error}")
        self.failure = str(error)
        self.samples.clear()


async def _shaped(side: Side, shape: Shape, opened: AsyncExitStack) -> Side:
    """The side with a server of that shape. Raises `BenchError`."""
    launcher = side.launcher
    flags = {Shape.SMALL: launcher.small_flags, Shape.LONG: launcher.long_flags}.get(shape, ()) if launcher else ()
    if launcher is None or not flags:
        return side
    server = await opened.enter_async_context(launcher.start(*flags))
    target = replace(side.client.target, base_url=server.base_url)
    client = await opened.enter_async_context(BenchClient.connect(target))
    await warm_up(client)
    return replace(side, client=client)
