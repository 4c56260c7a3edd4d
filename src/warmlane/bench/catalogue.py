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

GAP_BOUND_PACED = 4.0


def catalogue(engine: EngineConfig, *, paced: bool) -> tuple[Workload, ...]:
    """`engine` is how our server's engine is set up; `paced`: it was told to keep gaps between tokens short, and to let
    a newcomer wait for that."""
    return (
        SingleCold(),
        SingleWarm(),
        Decode(),
        Aggregate(),
        Share(),
        Agent(),
        Restart(),
        Overload(),
        Intrude(gap_bound=GAP_BOUND_PACED, newcomer_bound=None) if paced else Intrude(),
        Overhead(config=engine),
    )
