"""A served name: known for the life of the server, its model resident or not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from warmlane.errors import Unavailable, WarmlaneError
from warmlane.host.binding import Binding
from warmlane.host.gate import ModelGate
from warmlane.sessions import Lane, Permit

Loader = Callable[["ModelGate"], Awaitable[Binding]]
"""Loads the model and binds it, with the gate it is given. Raises `WarmlaneError` if it can not."""


class ModelSlot:
    """One name's binding, if any, and what arrivals hold while there is none.

    While the model is not resident, arrivals hold permits of `cold`, a lane of the same budget that nobody enters. At
    registration they become the model's own in one synchronous step, before any other arrival sees the new lane.
    """

    def __init__(self, name: str, *, created: int = 0, cold: Lane | None = None, loader: Loader | None = None) -> None:
        self.name = name
        self.created = created
        self.gate = ModelGate()
        self.loader = loader
        self.binding: Binding | None = None
        self._cold = cold
        self._arrival: asyncio.Future[Binding] | None = None

    @property
    def lane(self) -> Lane:
        """Where an arrival is charged now."""
        if self.binding is not None:
            return self.binding.lane
        if self._cold is None:
            raise Unavailable(f"The model {self.name} is not loaded.")
        return self._cold

    def bind(self, binding: Binding) -> None:
        """The model is resident from now on: every cold permit is its lane's, in arrival order."""
        self.binding = binding
        if self._cold is not None:
            binding.lane.take_over(self._cold)
        arrival, self._arrival = self._arrival, None
        if arrival is not None and not arrival.done():
            arrival.set_result(binding)

    def unbind(self) -> Binding | None:
        """Arrivals are cold from now on; those that wait in the old lane are woken at once and come back here."""
        binding, self.binding = self.binding, None
        if binding is not None:
            self._arrival = None
            binding.lane.close()
        return binding

    def fail(self, error: WarmlaneError) -> None:
        """A load failed: everyone who waits for it is told, and the next arrival tries again."""
        arrival, self._arrival = self._arrival, None
        if arrival is not None and not arrival.done():
            arrival.set_exception(Unavailable(f"The model {self.name} could not be loaded: {error.message}"))
            arrival.exception()  # told to those who wait; with nobody waiting it is no news

    def bound(self) -> asyncio.Future[Binding]:
        """The binding, now or once the next load ends; fails with `Unavailable` if that does. Shared: shield it.

        To be taken before the load starts, which may fail in its first step.
        """
        if self._arrival is None:
            self._arrival = asyncio.get_running_loop().create_future()
            if self.binding is not None:
                self._arrival.set_result(self.binding)
        return self._arrival


class HostPermit:
    """A unit of a model's budget, taken while it was resident or before."""

    def __init__(self, slot: ModelSlot, lane_permit: Permit) -> None:
        self._bound = slot.bound()
        self.lane_permit = lane_permit

    @property
    def deadline(self) -> float:
        """Clock time by which its turn must have a seat."""
        return self.lane_permit.deadline

    async def bound(self) -> Binding:
        """The model's binding, once it is resident. Raises `Unavailable`."""
        return await asyncio.shield(self._bound)

    def release(self) -> None:
        self.lane_permit.release()
