"""Time, injected: everything that waits or expires takes a `Clock`, so tests move time by hand."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """A callback that was scheduled and may be cancelled; cancelling twice, or after it ran, is a no-op."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """A monotonic time in seconds, and callbacks at a time."""

    def now(self) -> float:
        """Seconds since an arbitrary start; never goes back."""
        ...

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        """Run `callback` on the event loop once `now() >= when`."""
        ...


class SystemClock:
    """The real one: `time.monotonic`, timers on the running event loop."""

    def now(self) -> float:
        return time.monotonic()

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        return asyncio.get_running_loop().call_later(max(0.0, when - self.now()), callback)


async def sleep_until(clock: Clock, when: float) -> None:
    """Wait until `clock.now() >= when`."""
    woken = asyncio.Event()
    timer = clock.call_at(when, woken.set)
    try:
        await woken.wait()
    finally:
        timer.cancel()
