"""A whole spine in this process: simulated engine, in-memory store, one model named `m`."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from warmlane.clock import Clock, SystemClock
from warmlane.conversation.events import Failed, Finished, TurnEvent
from warmlane.conversation.messages import Message, Role, Text
from warmlane.conversation.turn import Dialect, Outcome, TurnRequest
from warmlane.engine.client import WorkerEngine
from warmlane.engine.config import EngineConfig, EngineKind
from warmlane.engine.local import LocalEngine
from warmlane.engine.protocol import Engine
from warmlane.host import Binding, ModelGate, ModelHost, TurnTasks
from warmlane.sessions import Lane, Secrets, SessionDefaults, SessionRegistry
from warmlane.store import ResponseStore, open_store
from warmlane.turns.leftovers import Leftovers
from warmlane.turns.parts import SpineParts
from warmlane.turns.spine import Spine
from warmlane.turns.stream import TurnStream

_ids = itertools.count(1)


def user(text: str) -> Message:
    return Message(Role.USER, (Text(text),))


def said(text: str) -> Message:
    return Message(Role.ASSISTANT, (Text(text),))


@dataclass(frozen=True)
class Rig:
    """The spine and its parts. `loads` counts how often the model was loaded; `capacity` and `limit` are the lane's."""

    spine: Spine
    host: ModelHost
    store: ResponseStore
    loads: list[Binding]

    @property
    def binding(self) -> Binding:
        return self.host.bindings()[0]

    @property
    def lane(self) -> Lane:
        return self.binding.lane

    @property
    def registry(self) -> SessionRegistry:
        return self.binding.registry

    @property
    def paged(self) -> bool:
        return self.registry.paged

    def ask(self, text: str | tuple[Message, ...], **changed: object) -> TurnRequest:
        """A request of a fresh id; by default Responses, stored, of the tenant without a name."""
        number = next(_ids)
        fields: dict[str, object] = {
            "request_id": f"req_{number}",
            "response_id": f"resp_{number}",
            "dialect": Dialect.RESPONSES,
            "tenant": "",
            "domain": self.spine.domain(str(changed.get("tenant", "")), None),
            "model": "m",
            "input": (user(text),) if isinstance(text, str) else text,
            "store": True,
        }
        return TurnRequest(**(fields | changed))  # type: ignore[arg-type]

    def start(self, request: TurnRequest) -> TurnStream:
        return self.spine.start(request, self.spine.reserve(request.model, request.tenant))

    async def run(self, request: TurnRequest) -> list[TurnEvent]:
        """Every event of a turn whose client stays to the end."""
        return await read(self.start(request))

    async def finished(self, request: TurnRequest) -> Outcome:
        """The outcome of a turn that must succeed, once its task has ended."""
        last = (await self.run(request))[-1]
        assert isinstance(last, Finished), last
        await self.idle()
        return last.outcome

    async def failed(self, request: TurnRequest) -> Exception:
        """The error of a turn that must fail, once its task has ended."""
        last = (await self.run(request))[-1]
        assert isinstance(last, Failed), last
        await self.idle()
        return last.error

    async def idle(self) -> None:
        """Every turn's task has ended."""
        while len(self.host.tasks):
            await asyncio.sleep(0)


async def read(stream: TurnStream, *, accept: bool = True) -> list[TurnEvent]:
    events = [event async for event in stream]
    if accept:
        stream.accept()
    stream.close()
    return events


@asynccontextmanager
async def rig(
    *,
    flat: bool = False,
    capacity: int = 4,
    max_waiting: int = 4,
    resident: bool = True,
    tenants: int = 1,
    clock: Clock | None = None,
    start_engine: Callable[[EngineConfig], Awaitable[Engine]] = LocalEngine.start,
    wrap_store: Callable[[ResponseStore], ResponseStore] = lambda store: store,
    tasks: TurnTasks | None = None,
    output_format: str | None = None,
    erase_files: Callable[[frozenset[bytes], frozenset[str]], Awaitable[None]] | None = None,
) -> AsyncIterator[Rig]:
    """`resident` False leaves the model to be loaded by the first request."""
    clock, secrets, loads = clock or SystemClock(), Secrets.in_memory(), list[Binding]()
    config = EngineConfig(kind=EngineKind.SIMULATED, model_name="m", flat=flat, capacity=capacity)

    def lane() -> Lane:
        seats = 1 if flat else capacity
        return Lane(capacity=seats, max_waiting=max_waiting, clock=clock, name="m", tenants=tenants)

    async def load(gate: ModelGate) -> Binding:
        engine = await start_engine(config)
        defaults = SessionDefaults(sampling=engine.info.sampling, max_output_tokens=engine.info.n_ctx)
        registry = SessionRegistry(engine, secrets=secrets, clock=clock, defaults=defaults)
        if isinstance(engine, WorkerEngine):
            engine.add_death_listener(registry.worker_died)
        loads.append(Binding(name="m", engine=engine, lane=lane(), registry=registry, created=0, gate=gate))
        return loads[-1]

    host = ModelHost(tasks=tasks)
    host.add("m", loader=load, cold=lane())
    store = wrap_store(await open_store("memory:"))
    parts = SpineParts(
        host=host,
        store=store,
        secrets=secrets,
        clock=clock,
        unix_now=lambda: 0.0,
        leftovers=Leftovers(now=lambda: 0.0),
        output_format=output_format,
    )
    if erase_files is not None:
        parts = replace(parts, erase_files=erase_files)
    try:
        if resident:
            await host.load("m")
        yield Rig(Spine(parts), host, store, loads)
    finally:
        await host.drained(0.0)
        await host.close()
        await store.close()
