"""A clock that moves when it is told to."""

from __future__ import annotations

from collections.abc import Callable


class _ManualTimer:
    def __init__(self, when: float, callback: Callable[[], None]) -> None:
        self.when = when
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class ManualClock:
    """Starts at `now_s`; `advance` runs the callbacks that come due, in order of their time."""

    def __init__(self, now_s: float = 1000.0) -> None:
        self._now_s = now_s
        self._timers: list[_ManualTimer] = []

    def now(self) -> float:
        return self._now_s

    @property
    def pending(self) -> int:
        """How many callbacks are still to come."""
        return sum(not timer.cancelled for timer in self._timers)

    def call_at(self, when: float, callback: Callable[[], None]) -> _ManualTimer:
        timer = _ManualTimer(when, callback)
        self._timers.append(timer)
        return timer

    def advance(self, seconds: float) -> None:
        self._now_s += seconds
        due = sorted((t for t in self._timers if t.when <= self._now_s), key=lambda timer: timer.when)
        self._timers = [timer for timer in self._timers if timer.when > self._now_s and not timer.cancelled]
        for timer in due:
            if not timer.cancelled:
                timer.callback()
