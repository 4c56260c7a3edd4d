"""The pipe from a turn's task to the connection that reads it.

The turn writes, one connection reads. The buffer is bounded, so a stalled reader parks only its own turn. The reader
going away never stops the task: it sets the turn's cancel flag, which the turn heeds until it has committed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from warmlane.conversation.events import Failed, Finished, TurnEvent

BUFFER_EVENTS = 256
"""Events held for a slow reader before the turn waits for it."""


class ReaderStalled(Exception):
    """The reader took nothing for the whole drain timeout."""


class TurnStream:
    """Events of one turn, in order, ending with Finished or Failed.

    Reader side: `async for`, then `accept()` once the terminal event's bytes were written, and `close()` always, when
    the connection is done with (before `accept()` it means the reader went away). Turn side: `tell`, `put`,
    `finish`.
    """

    def __init__(self, *, drain_timeout_s: float = 30.0, buffer_events: int = BUFFER_EVENTS) -> None:
        self._events: deque[TurnEvent] = deque()
        self._buffer = buffer_events
        self._drain_timeout_s = drain_timeout_s
        self._changed = asyncio.Event()
        self._taken = asyncio.Event()
        self._closed = False
        self._accepted = False
        self._ended = False
        self._on_close: list[Callable[[], None]] = []

    # reader side

    def __aiter__(self) -> TurnStream:
        return self

    async def __anext__(self) -> TurnEvent:
        while not self._events:
            if self._ended:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        event = self._events.popleft()
        self._taken.set()
        if isinstance(event, Finished | Failed):
            self._ended = True
        return event

    def accept(self) -> None:
        """The terminal event was written to the connection, and no close had been reported by then."""
        if not self._closed:
            self._accepted = True
        self._taken.set()

    def close(self) -> None:
        """The connection is done with. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._taken.set()
        for callback in self._on_close:
            callback()

    # turn side

    @property
    def closed(self) -> bool:
        """Whether the reader is gone."""
        return self._closed

    def on_close(self, callback: Callable[[], None]) -> None:
        """Call back when the reader goes away; at once if it already has."""
        if self._closed:
            callback()
        else:
            self._on_close.append(callback)

    def tell(self, event: TurnEvent) -> None:
        """Hand on an event without waiting, whatever the buffer holds. Dropped if the reader is gone."""
        self._push(event)

    async def put(self, event: TurnEvent) -> None:
        """Hand on an event; waits while the buffer is full. Dropped if the reader is gone.

        Raises `ReaderStalled` when the buffer stays full for the drain timeout.
        """
        deadline = asyncio.get_running_loop().time() + self._drain_timeout_s
        while len(self._events) >= self._buffer and not self._closed:
            await self._wait_taken(deadline)
        self._push(event)

    async def finish(self, event: Finished | Failed) -> bool:
        """Hand on the terminal event and wait until the reader accepted it or went away.

        True iff it was accepted. A reader that does neither within the drain timeout counts as gone.
        """
        self._push(event)
        deadline = asyncio.get_running_loop().time() + self._drain_timeout_s
        try:
            while not (self._accepted or self._closed):
                await self._wait_taken(deadline)
        except ReaderStalled:
            return False
        return self._accepted

    def _push(self, event: TurnEvent) -> None:
        if not self._closed:
            self._events.append(event)
            self._changed.set()

    async def _wait_taken(self, deadline: float) -> None:
        self._taken.clear()
        try:
            async with asyncio.timeout_at(deadline):
                await self._taken.wait()
        except TimeoutError:
            raise ReaderStalled from None
