"""What the engines say of themselves, asked when somebody looks."""

from __future__ import annotations

import asyncio

import msgspec

from warmlane.engine.client import WorkerEngine
from warmlane.errors import EngineDied
from warmlane.host import ModelHost
from warmlane.observe import EngineReading

ASK_TIMEOUT_S = 1.0
"""A worker answers between two engine steps; one that does not in time keeps its last reading."""


class EngineReadings:
    """The last statistics of each resident model's engine."""

    def __init__(self, host: ModelHost) -> None:
        self._host = host
        self._last: dict[str, EngineReading] = {}

    def readings(self) -> tuple[EngineReading, ...]:
        """Of the models that are resident now."""
        resident = {binding.name for binding in self._host.bindings()}
        return tuple(reading for name, reading in self._last.items() if name in resident)

    async def refresh(self) -> None:
        """Ask every engine, all at once."""
        await asyncio.gather(*(self._ask(b.name, b.engine) for b in self._host.bindings()))

    async def _ask(self, name: str, engine: object) -> None:
        if not isinstance(engine, WorkerEngine):
            return
        try:
            async with asyncio.timeout(ASK_TIMEOUT_S):
                stats = await engine.stats()
        except TimeoutError:
            return
        except EngineDied:
            self._last.pop(name, None)  # what it said of itself went with it
            return
        self._last[name] = EngineReading(model=name, values=msgspec.structs.asdict(stats))
