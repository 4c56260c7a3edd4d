"""Time moved by hand."""

from __future__ import annotations

import heapq
from collections.abc import Callable


class VirtualTimer:
    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self._callback = None

    @property
    def pending(self) -> bool:
        return self._callback is not None

    def fire(self) -> None:
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()


class VirtualClock:
    """A `warmlane.clock.Clock` that stands still until `advance`. Due timers run inside `advance`, in order of time."""

    def __init__(self, now: float = 1000.0) -> None:
        self._now = now
        self._timers: list[tuple[float, int, VirtualTimer]] = []
        self._serial = 0

    def now(self) -> float:
        return self._now

    def call_at(self, when: float, callback: Callable[[], None]) -> VirtualTimer:
        timer = VirtualTimer(callback)
        self._serial += 1
        heapq.heappush(self._timers, (when, self._serial, timer))
        return timer

    @property
    def pending(self) -> int:
        """Timers that would still fire."""
        return sum(timer.pending for _, _, timer in self._timers)

    def advance(self, seconds: float) -> None:
        """Move on by `seconds`, running what falls due at its own time."""
        end = self._now + seconds
        while self._timers and self._timers[0][0] <= end:
            when, _, timer = heapq.heappop(self._timers)
            self._now = max(self._now, when)
            timer.fire()
        self._now = end
