"""The tasks turns run in. They belong to the host, so no connection's end can end one half-way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class _Running:
    task: asyncio.Task[None]
    abort: Callable[[], None]


class TurnTasks:
    """Running turns, each with a way to ask it to stop (which it heeds until it has committed)."""

    def __init__(self) -> None:
        self._running: set[_Running] = set()

    def __len__(self) -> int:
        return len(self._running)

    def start(self, turn: Coroutine[None, None, None], *, abort: Callable[[], None], name: str) -> None:
        """Run `turn` to its end. It must handle its own errors: one that escapes is reported by the event loop."""
        entry = _Running(asyncio.get_running_loop().create_task(turn, name=name), abort)
        self._running.add(entry)
        entry.task.add_done_callback(lambda _: self._running.discard(entry))

    async def drain(self, grace_s: float) -> None:
        """Wait for every turn; those still running after `grace_s` seconds are asked to stop, and waited for."""
        tasks = {entry.task for entry in self._running}
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=grace_s)
        if late:
            for entry in list(self._running):
                entry.abort()
            await asyncio.wait(late)
