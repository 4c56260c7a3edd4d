"""Waiting for tasks by an injected clock."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Coroutine
from typing import TypeVar

from warmlane.clock import Clock

T = TypeVar("T")


async def wait_for_tasks(
    tasks: Collection[asyncio.Task[T]], *, clock: Clock, deadline: float, first: bool = False
) -> None:
    """Until all of `tasks` are done (or the `first` of them), at most until `deadline` in clock time. The tasks go on
    if the deadline passes or this wait is cancelled, and what they raise stays in them."""
    left = {task for task in tasks if not task.done()}
    if not left or (first and len(left) < len(tasks)):
        return
    over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def wake() -> None:
        if not over.done():
            over.set_result(None)

    def finished(task: asyncio.Task[T]) -> None:
        left.discard(task)
        if first or not left:
            wake()

    watched = tuple(left)
    for task in watched:
        task.add_done_callback(finished)
    timer = None if deadline == math.inf else clock.call_at(deadline, wake)
    try:
        await over
    finally:
        if timer is not None:
            timer.cancel()
        for task in watched:
            task.remove_done_callback(finished)


async def holds_in_time(question: Coroutine[None, None, bool], *, clock: Clock, timeout_s: float) -> bool:
    """Whether the answer is yes and comes within the time; an engine that hangs must not hold a seat. Raises what the
    question raises."""
    task = asyncio.get_running_loop().create_task(question)
    try:
        await wait_for_tasks((task,), clock=clock, deadline=clock.now() + timeout_s)
        return task.done() and task.result()
    finally:
        task.cancel()
