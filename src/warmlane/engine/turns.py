"""The asyncio side of running turns: who waits for which turn's events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable

from warmlane.engine.messages import TurnEvent, TurnFailed, TurnOutput
from warmlane.engine.protocol import Ended, EngineEvent
from warmlane.errors import EngineDied


class _Died:
    """In a turn's queue: the engine is gone."""


class TurnTable:
    """Open turns by number. Used on one event loop."""

    def __init__(self) -> None:
        self._turns: dict[int, asyncio.Queue[TurnEvent | _Died]] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._turns)

    def deliver(self, outputs: Iterable[TurnOutput]) -> None:
        """Hand events to whoever waits; those of turns nobody waits for any more are dropped."""
        for output in outputs:
            waiting = self._turns.get(output.turn)
            if waiting is not None:
                waiting.put_nowait(output.event)

    def all_died(self) -> None:
        """Every open turn ends in `EngineDied`, after the events it already has."""
        for waiting in self._turns.values():
            waiting.put_nowait(_Died())

    async def run(
        self, submit: Callable[[int], None], cancel: Callable[[int], None]
    ) -> AsyncGenerator[EngineEvent, None]:
        """Submit a turn under a fresh number and yield its events; cancel it if it is left before its end."""
        turn = self._next
        self._next += 1
        waiting: asyncio.Queue[TurnEvent | _Died] = asyncio.Queue()
        self._turns[turn] = waiting
        over = False
        try:
            submit(turn)
            while not over:
                event = await waiting.get()
                over = not isinstance(event, EngineEvent) or isinstance(event, Ended)
                if isinstance(event, _Died):
                    raise EngineDied("The engine's worker process ended while this turn ran.")
                if isinstance(event, TurnFailed):
                    raise event.error()
                yield event
        finally:
            del self._turns[turn]
            if not over:
                cancel(turn)
