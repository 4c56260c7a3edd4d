"""Admission: one budget and one predicate for everything that wants a model.

Every request is exactly one unit of its model's lane: a permit (before dispatch), a waiter, or active. At every
instant `active + waiting + permits <= capacity + max_waiting`. Capacity 1 is the exclusive lane of a flat engine, more
is the batched lane of a paged one; there is one implementation.

All state changes are synchronous and happen on one event loop.
"""

from __future__ import annotations

import asyncio
import math
from enum import Enum, auto
from types import TracebackType

from warmlane.clock import Clock
from warmlane.errors import Overloaded, QueueFull, QueueTimeout, SessionError, Unavailable
from warmlane.sessions.fairness import FairQueue, TenantLoad

QUEUE_TIMEOUT_S = 300.0
"""Default time from `reserve()` to a seat."""

RETRY_AFTER_MAX_S = 60
SERVICE_TIME_WEIGHT = 0.25
"""Weight of the newest turn in the moving average of service time."""


class _State(Enum):
    PERMIT = auto()
    WAITING = auto()
    SEATED = auto()
    ENDED = auto()


class _Unit:
    """One request's place in the budget. Permit and Seat are handles on it, so that a handle that is lost can free
    it: the lane itself holds units, never handles."""

    __slots__ = ("arrived_at", "deadline", "entered", "error", "future", "lane", "load", "seated_at", "state")

    def __init__(self, lane: Lane, load: TenantLoad[_Unit], deadline: float) -> None:
        self.lane = lane
        self.load = load
        self.deadline = deadline
        self.state = _State.PERMIT
        self.entered = False
        self.arrived_at = 0.0
        self.seated_at = 0.0
        self.future: asyncio.Future[None] | None = None
        self.error: Overloaded | None = None


class Permit:
    """A unit taken before dispatch. It ends once: handed to its lane by `Lane.enter`, or `release()`d; a permit that
    is garbage-collected releases itself."""

    __slots__ = ("_deadline", "_unit")

    def __init__(self, unit: _Unit) -> None:
        self._unit: _Unit | None = unit
        self._deadline = unit.deadline

    @property
    def deadline(self) -> float:
        """Clock time at which this request has waited long enough, whatever it waits for."""
        return self._deadline

    @property
    def held(self) -> bool:
        """Whether it still stands for a unit."""
        return self._unit is not None and self._unit.state is _State.PERMIT

    def release(self) -> None:
        """Give the unit back. Idempotent; a no-op after hand-off."""
        unit, self._unit = self._unit, None
        if unit is not None:
            unit.lane._end(unit, None)

    def _hand_off(self, lane: Lane) -> _Unit | None:
        unit = self._unit
        if unit is None or unit.lane is not lane or unit.state is not _State.PERMIT:
            return None
        self._unit = None
        return unit

    def __del__(self) -> None:
        if self._unit is not None:
            self.release()


class Seat:
    """A place in the lane, waiting or seated, used once and only as `async with`. One that is never entered frees its
    unit when it is dropped.

    Entering raises `QueueTimeout` at the deadline, `Unavailable` when the lane closes and `asyncio.CancelledError` when
    the task is cancelled; in each case the unit is free by then, and a seat that was already given has been passed on
    in the same call.
    """

    __slots__ = ("_unit",)

    def __init__(self, unit: _Unit) -> None:
        self._unit = unit

    @property
    def seated(self) -> bool:
        """Whether it holds a seat now."""
        return self._unit.state is _State.SEATED

    @property
    def waited_s(self) -> float:
        """Seconds from `enter()` to the seat; 0 while none was given."""
        unit = self._unit
        return max(0.0, unit.seated_at - unit.arrived_at)

    async def __aenter__(self) -> Seat:
        unit = self._unit
        if unit.entered:
            raise SessionError("A seat can be entered once.")
        unit.entered = True
        if unit.state is _State.WAITING:
            await unit.lane._wait(unit)
        if unit.error is not None:
            raise unit.error
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._unit.lane._leave(self._unit)

    def __del__(self) -> None:
        if not self._unit.entered:
            self._unit.lane._end(self._unit, None)


class Lane:
    """The budget of one model: at most `capacity` turns at once and `max_waiting` units beside them (None: no bound).

    `tenants` is how many tenants are configured: from two on, one tenant holds at most three quarters of the budget.
    """

    def __init__(
        self,
        *,
        capacity: int,
        max_waiting: int | None,
        clock: Clock,
        queue_timeout_s: float = QUEUE_TIMEOUT_S,
        tenants: int = 1,
        name: str = "",
    ) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, not {capacity}")
        if max_waiting is not None and max_waiting < 0:
            raise ValueError(f"max_waiting must be at least 0, or None, not {max_waiting}")
        self.name = name
        self.tenants = tenants
        self.queue_timeout_s = queue_timeout_s
        self._capacity = capacity
        self._max_waiting = max_waiting
        self._clock = clock
        self._active = 0
        self._waiting = 0
        self._permits: dict[_Unit, None] = {}
        self._queue: FairQueue[_Unit] = FairQueue()
        self._service_s: float | None = None
        self._closed = False
        self._idle: list[asyncio.Future[None]] = []
        self._refusals = {"lane": 0, "tenant": 0}

    @property
    def active(self) -> int:
        """Units that hold a seat."""
        return self._active

    @property
    def waiting(self) -> int:
        """Units that entered and wait for a seat."""
        return self._waiting

    @property
    def permits(self) -> int:
        """Units that were reserved and have not entered."""
        return len(self._permits)

    @property
    def capacity(self) -> int:
        """Seats."""
        return self._capacity

    @property
    def limit(self) -> int | None:
        """`max_waiting`."""
        return self._max_waiting

    @property
    def closed(self) -> bool:
        return self._closed

    def refusals(self, scope: str) -> int:
        """Arrivals refused so far by one clause of the predicate, `"lane"` or `"tenant"`."""
        return self._refusals[scope]

    def reserve(self, tenant: str = "", *, deadline: float | None = None) -> Permit:
        """Take a unit before dispatch. Synchronous: call it before any await of the request's.

        `deadline` (clock time) is kept from an earlier reservation of the same request; by default the queue timeout
        runs from now. Raises `QueueFull`, or `Unavailable` on a closed lane; then nothing was changed.
        """
        return Permit(self._admit(tenant, deadline))

    def enter(self, permit: Permit | None = None, *, tenant: str = "") -> Seat:
        """Charge this request in the call, and return its seat to be used as `async with`.

        A held permit of this lane becomes an active or a waiting unit without a second check, under its own tenant;
        any other permit gives no credit and the arrival is charged as a new one. Raises `QueueFull` or `Unavailable`.
        """
        unit = permit._hand_off(self) if permit is not None else None
        if unit is None:
            unit = self._admit(tenant, None)
        if self._closed:
            self._end(unit, None)
            raise self._unavailable()
        now = unit.arrived_at = self._clock.now()
        if now >= unit.deadline:
            self._end(unit, self._timed_out())
            return Seat(unit)
        del self._permits[unit]
        if self._active < self._capacity:
            self._seat(unit, now)
        else:
            unit.state = _State.WAITING
            self._waiting += 1
            self._queue.push(unit.load, unit)
        return Seat(unit)

    def take_over(self, cold: Lane) -> int:
        """At a model's registration: make every permit of `cold`, the lane its arrivals held while it loaded, one of
        this lane's, in order of arrival and in this one call.

        Permits that find the budget of this lane spent are ended, newest first to suffer: their `enter` is then judged
        as a new arrival. Returns how many were taken over.
        """
        taken = 0
        for unit in list(cold._permits):
            tenant = unit.load.name
            fits = not self._closed and self._refused_by(tenant) is None
            cold._end(unit, None)
            if fits:
                unit.lane, unit.load, unit.state = self, self._queue.load(tenant), _State.PERMIT
                self._charge(unit)
                taken += 1
        return taken

    def retry_after_s(self) -> int:
        """Whole seconds after which a place is likely: (waiting + permits) x recent service time / capacity, within
        1 to 60; 1 while no turn has ended yet."""
        if self._service_s is None:
            return 1
        estimate = (self._waiting + len(self._permits)) * self._service_s / self._capacity
        return max(1, min(RETRY_AFTER_MAX_S, math.ceil(estimate)))

    def close(self) -> None:
        """Shutdown or unload: refuse arrivals and end every waiter with `Unavailable`, at once. Active turns run on,
        and permits stay charged until they are released or try to enter."""
        self._closed = True
        for unit in self._queue.all_waiting():
            self._end(unit, self._unavailable())

    async def drained(self) -> None:
        """Wait until the lane holds no unit at all."""
        while self._active or self._waiting or self._permits:
            future = asyncio.get_running_loop().create_future()
            self._idle.append(future)
            await future

    def _refused_by(self, tenant: str) -> str | None:
        """The predicate: the clause that refuses an arrival of this tenant now, or None. It is nowhere else."""
        if self._max_waiting is None:
            return None
        bound = self._capacity + self._max_waiting
        if self._active + self._waiting + len(self._permits) >= bound:
            return "lane"
        if self.tenants > 1 and self._queue.units(tenant) >= -(-3 * bound // 4):
            return "tenant"
        return None

    def _admit(self, tenant: str, deadline: float | None) -> _Unit:
        if self._closed:
            raise self._unavailable()
        scope = self._refused_by(tenant)
        if scope is not None:
            self._refusals[scope] += 1
            raise QueueFull(
                waiting=self._waiting,
                permits=len(self._permits),
                limit=self._max_waiting,
                scope=scope,
                retry_after_s=self.retry_after_s(),
            )
        if deadline is None:
            deadline = self._clock.now() + self.queue_timeout_s
        unit = _Unit(self, self._queue.load(tenant), deadline)
        self._charge(unit)
        return unit

    def _charge(self, unit: _Unit) -> None:
        self._permits[unit] = None
        unit.load.units += 1

    def _seat(self, unit: _Unit, now: float) -> None:
        unit.state = _State.SEATED
        unit.seated_at = now
        self._active += 1
        self._queue.seat(unit.load)
        if unit.future is not None:
            unit.future.set_result(None)

    async def _wait(self, unit: _Unit) -> None:
        """Until the unit is seated or ended. If this wait is cancelled the unit is freed, and a seat it was given
        meanwhile is passed on, before the cancellation goes further."""
        if self._clock.now() >= unit.deadline:
            self._end(unit, self._timed_out())
            return
        future = unit.future = asyncio.get_running_loop().create_future()
        timer = None
        if unit.deadline != math.inf:
            timer = self._clock.call_at(unit.deadline, lambda: self._expire(unit))
        try:
            await future
        except BaseException:
            self._end(unit, None)
            raise
        finally:
            if timer is not None:
                timer.cancel()

    def _expire(self, unit: _Unit) -> None:
        if unit.state is _State.WAITING:
            self._end(unit, self._timed_out())

    def _leave(self, unit: _Unit) -> None:
        """The body has run: learn its service time and free the seat."""
        service_s = self._clock.now() - unit.seated_at
        recent = self._service_s
        self._service_s = service_s if recent is None else recent + SERVICE_TIME_WEIGHT * (service_s - recent)
        self._end(unit, None)

    def _end(self, unit: _Unit, error: Overloaded | None) -> None:
        """Free a unit, whatever it is; a no-op for one that has ended. A freed seat is handed over in this call."""
        state = unit.state
        if state is _State.ENDED:
            return
        unit.state = _State.ENDED
        unit.error = error
        load = unit.load
        load.units -= 1
        if state is _State.PERMIT:
            del self._permits[unit]
        elif state is _State.WAITING:
            self._waiting -= 1
            self._queue.remove(load, unit)
            if unit.future is not None and not unit.future.done():
                unit.future.set_result(None)
        else:
            self._active -= 1
            load.active -= 1
            self._hand_over()
        if self._idle and not (self._active or self._waiting or self._permits):
            self._wake_idle()

    def _hand_over(self) -> None:
        """Give the free seat to the next waiter that still wants it."""
        while (unit := self._queue.first()) is not None:
            if unit.future is not None and unit.future.done():
                self._end(unit, None)
                continue
            self._queue.remove(unit.load, unit)
            self._waiting -= 1
            self._seat(unit, self._clock.now())
            return

    def _wake_idle(self) -> None:
        idle, self._idle = self._idle, []
        for future in idle:
            if not future.done():
                future.set_result(None)

    def _timed_out(self) -> QueueTimeout:
        return QueueTimeout(f"No seat came free within {self.queue_timeout_s:g} s.", retry_after_s=self.retry_after_s())

    def _unavailable(self) -> Unavailable:
        return Unavailable(f"The model {self.name!r} takes no more requests." if self.name else "The lane is closed.")
