"""Every workload, in the order they are run and shown."""

from __future__ import annotations

from warmlane.bench.agent import Agent
from warmlane.bench.loads import Intrude, Overload
from warmlane.bench.overhead import Overhead
from warmlane.bench.restart import Restart
from warmlane.bench.single import Decode, SingleCold, SingleWarm
from warmlane.bench.together import Aggregate, Share
from warmlane.bench.workload import Workload
from warmlane.engine.config import EngineConfig

INTRUDE_BOUND = 12.0
INTRUDE_LOW_BOUND = 4.0


def catalogue(engine: EngineConfig, *, paced: bool) -> tuple[Workload, ...]:
    """`engine` is how our server's engine is set up; `paced`: it was told to keep gaps between tokens short."""
    return (
        SingleCold(),
        SingleWarm(),
        Decode(),
        Aggregate(),
        Share(),
        Agent(),
        Restart(),
        Overload(),
        Intrude(gap_bound=INTRUDE_LOW_BOUND if paced else INTRUDE_BOUND),
        Overhead(config=engine),
    )
