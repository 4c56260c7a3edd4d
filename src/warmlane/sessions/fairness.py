"""Who is seated next: the waiting tenant with the fewest seats, FIFO inside a tenant."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

REMEMBERED_TENANTS = 1024
"""Idle tenants whose last service is remembered. The longest-idle one is forgotten first, which changes nothing for
it but a tie against another tenant that was never served."""

T = TypeVar("T")


class TenantLoad(Generic[T]):
    """What one tenant holds of a lane. `units` counts permits, waiters and seats; `served` is the serial number of
    the last seat it was given (0: none)."""

    __slots__ = ("active", "name", "served", "units", "waiting")

    def __init__(self, name: str) -> None:
        self.name = name
        self.units = 0
        self.active = 0
        self.served = 0
        self.waiting: OrderedDict[T, None] = OrderedDict()


class FairQueue(Generic[T]):
    """Waiters by tenant. The next one is of the waiting tenant with the fewest active seats, ties to the one served
    longest ago, then to the one that began to wait first; inside a tenant by order of arrival."""

    def __init__(self) -> None:
        self._loads: dict[str, TenantLoad[T]] = {}
        self._waiting: dict[str, TenantLoad[T]] = {}
        self._seats_given = 0

    def units(self, tenant: str) -> int:
        """Units this tenant holds; asking leaves no trace."""
        load = self._loads.get(tenant)
        return 0 if load is None else load.units

    def load(self, tenant: str) -> TenantLoad[T]:
        """The record of a tenant, made at need."""
        load = self._loads.get(tenant)
        if load is None:
            if len(self._loads) >= REMEMBERED_TENANTS:
                self._forget_idle()
            load = self._loads[tenant] = TenantLoad(tenant)
        return load

    def seat(self, load: TenantLoad[T]) -> None:
        """Count a seat given to this tenant."""
        self._seats_given += 1
        load.served = self._seats_given
        load.active += 1

    def push(self, load: TenantLoad[T], waiter: T) -> None:
        load.waiting[waiter] = None
        self._waiting.setdefault(load.name, load)

    def remove(self, load: TenantLoad[T], waiter: T) -> None:
        del load.waiting[waiter]
        if not load.waiting:
            del self._waiting[load.name]

    def first(self) -> T | None:
        """The waiter to be seated next; it stays in the queue."""
        if not self._waiting:
            return None
        load = min(self._waiting.values(), key=lambda each: (each.active, each.served))
        return next(iter(load.waiting))

    def all_waiting(self) -> list[T]:
        return [waiter for load in self._waiting.values() for waiter in load.waiting]

    def _forget_idle(self) -> None:
        idle = sorted((load for load in self._loads.values() if not load.units), key=lambda load: load.served)
        for load in idle[: len(idle) // 2 + 1]:
            del self._loads[load.name]
