"""A whole spine in this process: simulated engine, in-memory store, one model named `m`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from warmlane.clock import SystemClock
from warmlane.engine.config import EngineConfig, EngineKind
from warmlane.engine.local import LocalEngine
from warmlane.host import Binding, ModelHost
from warmlane.sessions import Lane, Secrets, SessionDefaults, SessionRegistry
from warmlane.store import ResponseStore, open_store
from warmlane.turns.parts import SpineParts
from warmlane.turns.spine import Spine


@dataclass(frozen=True)
class Rig:
    spine: Spine
    host: ModelHost
    store: ResponseStore
    lane: Lane
    registry: SessionRegistry
    engine: LocalEngine

    @property
    def paged(self) -> bool:
        return self.registry.paged

    async def idle(self) -> None:
        """Every turn's task has ended."""
        while len(self.host.tasks):
            await asyncio.sleep(0)


@asynccontextmanager
async def rig(*, flat: bool = False, capacity: int = 4, max_waiting: int = 4) -> AsyncIterator[Rig]:
    clock = SystemClock()
    engine = await LocalEngine.start(
        EngineConfig(kind=EngineKind.SIMULATED, model_name="m", flat=flat, capacity=capacity)
    )
    secrets = Secrets.in_memory()
    lane = Lane(capacity=engine.info.capacity, max_waiting=max_waiting, clock=clock, name="m")
    defaults = SessionDefaults(sampling=engine.info.sampling, max_output_tokens=engine.info.n_ctx)
    registry = SessionRegistry(engine, secrets=secrets, clock=clock, defaults=defaults)
    host = ModelHost()
    host.register(Binding(name="m", engine=engine, lane=lane, registry=registry, created=0))
    store = await open_store("memory:")
    parts = SpineParts(host=host, store=store, secrets=secrets, clock=clock, unix_now=lambda: 0.0)
    try:
        yield Rig(Spine(parts), host, store, lane, registry, engine)
    finally:
        await host.drained(0.0)
        await host.close()
        await store.close()
