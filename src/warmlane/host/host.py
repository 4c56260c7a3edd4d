"""Which models this server has, which are loaded, and the turns that run on them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from warmlane.errors import ModelNotFound, Unavailable, WarmlaneError
from warmlane.host.aliases import Aliases
from warmlane.host.binding import Binding
from warmlane.host.slot import HostPermit, Loader, ModelSlot
from warmlane.host.tasks import TurnTasks
from warmlane.host.view import ModelCard, Readiness, SessionCard
from warmlane.sessions import Lane

log = logging.getLogger(__name__)

LOAD_TIMEOUT_S = 300.0


class ModelHost:
    """Served names to their models. Reserving is synchronous: a resident model never waits for a load.

    Loads are one at a time, and each has its model alone: it takes the writer of the model's gate, before which no new
    turn gets in. Only a model that is not resident is ever loaded. `aliases` are other names of served ones.
    """

    def __init__(
        self,
        *,
        load_timeout_s: float = LOAD_TIMEOUT_S,
        tasks: TurnTasks | None = None,
        aliases: Aliases | None = None,
    ) -> None:
        self._slots: dict[str, ModelSlot] = {}
        self._draining = False
        self._on_drain: dict[object, Callable[[], None]] = {}
        self._load_timeout_s = load_timeout_s
        self._one_load = asyncio.Lock()
        self._loads: dict[str, asyncio.Task[None]] = {}
        self._aliases = aliases if aliases is not None else Aliases()
        self.tasks = tasks if tasks is not None else TurnTasks()

    def register(self, binding: Binding) -> None:
        """Serve a model that was loaded elsewhere; the first name registered or added is the default model's."""
        self._slots.setdefault(binding.name, ModelSlot(binding.name)).bind(binding)

    def add(self, name: str, *, loader: Loader, cold: Lane, created: int = 0) -> None:
        """Know a model that is loaded when it is first asked for. `cold` is charged until then; `created` is in Unix
        seconds."""
        self._slots[name] = ModelSlot(name, created=created, cold=cold, loader=loader)

    def reserve(self, name: str, tenant: str, *, deadline: float | None = None) -> HostPermit:
        """Take a unit of the model's budget, and have the model loaded if it is not.

        Raises `ModelNotFound` before anything is charged, `QueueFull`, and while draining `Unavailable`.
        """
        slot = self._slot(name)
        permit = HostPermit(slot, slot.lane.reserve(tenant, deadline=deadline))
        if slot.binding is None:
            self._start_load(slot)
        return permit

    async def resolve(self, name: str) -> Binding:
        """The binding of a name, loading the model if need be. Raises `ModelNotFound` or `Unavailable`."""
        slot = self._slot(name)
        bound = slot.bound()
        if slot.binding is None:
            self._start_load(slot)
        return await asyncio.shield(bound)

    async def load(self, name: str) -> Binding:
        """Load a model now. Raises what its loader raises."""
        slot = self._slot(name)
        await self._load(slot)
        return await asyncio.shield(slot.bound())

    async def unload(self, name: str) -> None:
        """Give up a model: its waiters are woken at once and wait for it anew; its running turns end first."""
        slot = self._slot(name)
        binding = slot.unbind()
        if binding is not None:
            async with slot.gate.writer():
                await _close(binding)

    def is_current(self, binding: Binding) -> bool:
        """Whether `binding` is still what its name is bound to."""
        slot = self._slots.get(binding.name)
        return slot is not None and slot.binding is binding

    def bindings(self) -> tuple[Binding, ...]:
        """Of the resident models, the default one first."""
        return tuple(slot.binding for slot in self._slots.values() if slot.binding is not None)

    def models(self) -> list[ModelCard]:
        return [_card(slot) for slot in self._slots.values()]

    def canonical(self, name: str) -> str:
        return name if name in self._slots else self._aliases.target(name) or name

    def card(self, name: str) -> ModelCard | None:
        slot = self._slots.get(name)
        return None if slot is None else _card(slot)

    def sessions(self, tenant: str | None) -> list[SessionCard]:
        return [
            SessionCard(warm.id, binding.name, warm.age_s, warm.tokens)
            for binding in self.bindings()
            for warm in binding.registry.warm_sessions(tenant)
        ]

    def end_session(self, session_id: str, tenant: str | None) -> bool:
        return sum(binding.registry.drop(session_id, tenant=tenant) for binding in self.bindings()) > 0

    def readiness(self) -> Readiness:
        slot = next(iter(self._slots.values()), None)
        if slot is None or slot.binding is None:
            return Readiness(False, "draining" if self._draining else "no model is loaded", 0, 0, 0, 0, None)
        lane = slot.binding.lane
        counts = (lane.active, lane.waiting, lane.permits, lane.capacity, lane.limit)
        if self._draining:
            return Readiness(False, "draining", *counts)
        if not slot.binding.engine.ready:
            return Readiness(False, "the engine is starting", *counts)
        bound = None if lane.limit is None else lane.capacity + lane.limit
        if bound is not None and lane.active + lane.waiting + lane.permits >= bound:
            return Readiness(False, "the queue is full", *counts)
        return Readiness(True, "ready", *counts)

    def begin_drain(self) -> None:
        """Take no more turns: `/ready` says so, and turns that wait for a seat or a load end in `Unavailable`."""
        self._draining = True
        for slot in self._slots.values():
            if slot.binding is not None:
                slot.binding.lane.close()
            slot.fail(self._shutting_down())
        for tell in list(self._on_drain.values()):
            tell()

    def on_drain(self, tell: Callable[[], None]) -> Callable[[], None]:
        key = object()
        self._on_drain[key] = tell
        if self._draining:
            tell()

        def forget() -> None:
            self._on_drain.pop(key, None)

        return forget

    async def drained(self, grace_s: float) -> None:
        """Wait for the turns that run; past `grace_s` seconds they are stopped."""
        await self.tasks.drain(grace_s)

    async def close(self) -> None:
        """Stop loads, dispose every warm session and stop the engines."""
        loads = list(self._loads.values())
        for load in loads:
            load.cancel()
        await asyncio.gather(*loads, return_exceptions=True)
        for slot in self._slots.values():
            binding = slot.unbind()
            if binding is not None:
                await _close(binding)
        self._slots.clear()

    def _slot(self, name: str) -> ModelSlot:
        if self._draining:
            raise self._shutting_down()
        slot = self._slots.get(name)
        if slot is None:
            raise ModelNotFound(name, tuple(self._slots))
        return slot

    def _shutting_down(self) -> Unavailable:
        return Unavailable("The server is shutting down.", retry_after_s=5)

    def _start_load(self, slot: ModelSlot) -> None:
        running = self._loads.get(slot.name)
        if running is None or running.done():
            load = self._load_for_arrivals(slot)
            self._loads[slot.name] = asyncio.get_running_loop().create_task(load, name=f"load {slot.name}")

    async def _load_for_arrivals(self, slot: ModelSlot) -> None:
        try:
            await self._load(slot)
        except WarmlaneError as error:
            log.error("model %s could not be loaded: %s", slot.name, error)
            slot.fail(error)
        except Exception as error:
            log.error("model %s could not be loaded: %s", slot.name, type(error).__name__)
            slot.fail(Unavailable("loading it failed."))

    async def _load(self, slot: ModelSlot) -> None:
        if slot.loader is None:
            raise Unavailable(f"The model {slot.name} is not loaded.")
        async with self._one_load, slot.gate.writer():
            if slot.binding is not None:
                return
            try:
                async with asyncio.timeout(self._load_timeout_s):
                    binding = await slot.loader(slot.gate)
            except TimeoutError:
                raise Unavailable(f"it took longer than {self._load_timeout_s:g} s.") from None
            if self._draining:
                await _close(binding)
                raise self._shutting_down()
            slot.bind(binding)


async def _close(binding: Binding) -> None:
    binding.registry.clear()
    await binding.registry.flush_disposals()
    await binding.engine.close()


def _card(slot: ModelSlot) -> ModelCard:
    binding = slot.binding
    if binding is None:
        return ModelCard(id=slot.name, created=slot.created, context_window=None)
    info, sampling = binding.engine.info, binding.registry.defaults.sampling
    return ModelCard(
        id=slot.name,
        created=binding.created,
        context_window=info.n_ctx,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
    )
