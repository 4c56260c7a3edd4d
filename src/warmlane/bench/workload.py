"""What a workload is: work for one server, seeded, and the numbers it yields."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from warmlane.bench.client import BenchClient
from warmlane.bench.servers import Launcher
from warmlane.bench.stats import Better


class Against(StrEnum):
    """What a bound is on: our value divided by the peer's, pair by pair, or our value as it is."""

    PEER = "peer"
    ITSELF = "itself"


class Shape(StrEnum):
    """What kind of server a workload is for. Where the bench may start servers, it starts one for it if the usual one
    is another kind: `SMALL` has 4 seats and 16 places to wait, `LONG` lets one conversation fill the window."""

    USUAL = "usual"
    SMALL = "small"
    LONG = "long"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One number of a workload. `better` is None for a fact that is neither good nor bad. `bound` is of the ratio to
    the peer, or of the number itself; None: nothing is asked. `unit` is `s`, `tok`, `tok/s`, `%` or empty (a ratio,
    or a count)."""

    name: str
    unit: str = ""
    better: Better | None = None
    bound: float | None = None
    against: Against = Against.PEER


@dataclass(frozen=True, slots=True)
class Sample:
    """One run on one server: a value for each metric it could measure, and what a reader should know. `stolen` is the
    share of all processors' time that the host of the bench's own machine kept meanwhile, from 0 to 1, where that is
    known."""

    values: Mapping[str, float]
    notes: tuple[str, ...] = ()
    stolen: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A server in the run. `other` is the one it is compared with; `launcher` starts further ones like it, where the
    bench may; `reference` may be a llama-server, which can tokenize for both sides."""

    name: str
    client: BenchClient
    other: BenchClient | None = None
    launcher: Launcher | None = None
    reference: BenchClient | None = None


class Workload(Protocol):
    """`ours_only`: it says nothing about a peer. `needs_launcher`: it starts and stops servers of its own."""

    @property
    def name(self) -> str: ...

    @property
    def metrics(self) -> tuple[Metric, ...]: ...

    @property
    def ours_only(self) -> bool: ...

    @property
    def needs_launcher(self) -> bool: ...

    @property
    def shape(self) -> Shape: ...

    async def run(self, side: Side, rng: random.Random) -> Sample:
        """Do the work once. The same state of `rng` gives the same prompts. Raises `BenchError`."""
        ...
