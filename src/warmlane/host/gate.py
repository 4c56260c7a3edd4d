"""Who may use a model's native state: many turns as readers, or one load, swap or unload as the writer.

Writer-preferring: once a writer waits, no new reader gets in, so a stream of turns cannot starve a load. A turn takes
the reader only after its seat, so readers are at most the lane's capacity.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class ModelGate:
    """A writer-preferring reader/writer lock for one event loop. Readers and writers are each served in order."""

    def __init__(self) -> None:
        self._readers = 0
        self._writing = False
        self._waiting_writers: deque[asyncio.Future[None]] = deque()
        self._waiting_readers: deque[asyncio.Future[None]] = deque()

    @property
    def readers(self) -> int:
        """Turns inside."""
        return self._readers

    @property
    def writer_waits(self) -> bool:
        return any(not f.done() for f in self._waiting_writers)

    @asynccontextmanager
    async def reader(self) -> AsyncIterator[None]:
        """Share the model. Waits while a writer is inside or waiting."""
        if self._writing or self.writer_waits:
            await self._wait(self._waiting_readers)
        else:
            self._readers += 1
        try:
            yield
        finally:
            self._readers -= 1
            self._hand_over()

    @asynccontextmanager
    async def writer(self) -> AsyncIterator[None]:
        """Have the model alone. Waits until every reader and earlier writer has left."""
        if self._writing or self._readers or self.writer_waits:
            await self._wait(self._waiting_writers)
        else:
            self._writing = True
        try:
            yield
        finally:
            self._writing = False
            self._hand_over()

    async def _wait(self, queue: deque[asyncio.Future[None]]) -> None:
        """Wait to be let in by `_hand_over`, which counts the entry in the same call.

        One let in and cancelled before it ran passes the place on; one cancelled while waiting may have been the writer
        that held readers back.
        """
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                if queue is self._waiting_writers:
                    self._writing = False
                else:
                    self._readers -= 1
            self._hand_over()
            raise

    def _hand_over(self) -> None:
        if self._writing:
            return
        writers = self._waiting_writers
        while writers and writers[0].done():
            writers.popleft()
        if writers:
            if not self._readers:
                self._writing = True
                writers.popleft().set_result(None)
            return
        while self._waiting_readers:
            waiting = self._waiting_readers.popleft()
            if not waiting.done():
                self._readers += 1
                waiting.set_result(None)
