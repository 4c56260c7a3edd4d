"""Which models this server has, and the turns that run on them."""

from __future__ import annotations

from warmlane.errors import ModelNotFound, Unavailable
from warmlane.host.binding import Binding
from warmlane.host.tasks import TurnTasks
from warmlane.host.view import ModelCard, Readiness


class ModelHost:
    """Served names to bindings. Resolving is a dictionary look-up: a resident model never waits for a load."""

    def __init__(self) -> None:
        self._bindings: dict[str, Binding] = {}
        self._draining = False
        self.tasks = TurnTasks()

    def register(self, binding: Binding) -> None:
        """Serve `binding` under its name from now on; the first registered is the default model."""
        self._bindings[binding.name] = binding

    def resolve(self, name: str) -> Binding:
        """The binding of a served name. Raises `ModelNotFound`; while draining, `Unavailable`."""
        if self._draining:
            raise Unavailable("The server is shutting down.", retry_after_s=5)
        binding = self._bindings.get(name)
        if binding is None:
            raise ModelNotFound(name, tuple(self._bindings))
        return binding

    def is_current(self, binding: Binding) -> bool:
        """Whether `binding` is still what its name is bound to."""
        return self._bindings.get(binding.name) is binding

    def bindings(self) -> tuple[Binding, ...]:
        return tuple(self._bindings.values())

    def models(self) -> list[ModelCard]:
        return [_card(binding) for binding in self._bindings.values()]

    def card(self, name: str) -> ModelCard | None:
        binding = self._bindings.get(name)
        return None if binding is None else _card(binding)

    def readiness(self) -> Readiness:
        binding = next(iter(self._bindings.values()), None)
        if binding is None:
            return Readiness(False, "no model is loaded", 0, 0, 0, 0, None)
        lane = binding.lane
        counts = (lane.active, lane.waiting, lane.permits, lane.capacity, lane.limit)
        if self._draining:
            return Readiness(False, "draining", *counts)
        if not binding.engine.ready:
            return Readiness(False, "the engine is starting", *counts)
        bound = None if lane.limit is None else lane.capacity + lane.limit
        if bound is not None and lane.active + lane.waiting + lane.permits >= bound:
            return Readiness(False, "the queue is full", *counts)
        return Readiness(True, "ready", *counts)

    def begin_drain(self) -> None:
        """Take no more turns: `/ready` says so, and turns that wait for a seat end in `Unavailable`."""
        self._draining = True
        for binding in self._bindings.values():
            binding.lane.close()

    async def drained(self, grace_s: float) -> None:
        """Wait for the turns that run; past `grace_s` seconds they are stopped."""
        await self.tasks.drain(grace_s)

    async def close(self) -> None:
        """Dispose every warm session and stop the engines."""
        for binding in self._bindings.values():
            binding.registry.clear()
            await binding.registry.flush_disposals()
            await binding.engine.close()
        self._bindings.clear()


def _card(binding: Binding) -> ModelCard:
    info, sampling = binding.engine.info, binding.registry.defaults.sampling
    return ModelCard(
        id=binding.name,
        created=binding.created,
        context_window=info.n_ctx,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
    )
