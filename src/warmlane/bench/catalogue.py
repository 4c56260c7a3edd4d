"""Every workload, in the order they are run and shown."""

from __future__ import annotations

from warmlane.bench.single import Decode, SingleCold, SingleWarm
from warmlane.bench.together import Aggregate, Share
from warmlane.bench.workload import Workload


def catalogue() -> tuple[Workload, ...]:
    return (SingleCold(), SingleWarm(), Decode(), Aggregate(), Share())
