"""Something done to a turn at one of the points where its task gives way to others."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any

from warmlane.host import TurnTasks


class _Probed:
    """Awaiting it runs `turn`, and calls `disturb` when the turn is suspended for the `at`th time (counted from 1)."""

    def __init__(self, turn: Coroutine[Any, Any, None], at: int, disturb: Callable[[], None]) -> None:
        self._turn = turn
        self._at = at
        self._disturb = disturb
        self.suspensions = 0

    def __await__(self) -> Generator[Any, Any, None]:
        step, argument = self._turn.send, None
        while True:
            try:
                awaited = step(argument)
            except StopIteration:
                return
            self.suspensions += 1
            if self.suspensions == self._at:
                self._disturb()
            try:
                step, argument = self._turn.send, (yield awaited)
            except BaseException as error:
                step, argument = self._turn.throw, error


class ProbedTasks(TurnTasks):
    """The tasks of a host, of which the next one to start can be probed."""

    def __init__(self) -> None:
        super().__init__()
        self._next: tuple[int, Callable[[], None]] | None = None
        self._probe: _Probed | None = None

    def disturb_next(self, at: int, disturb: Callable[[], None]) -> None:
        self._next = (at, disturb)
        self._probe = None

    @property
    def reached(self) -> bool:
        """Whether the probed turn came to its `at`th suspension."""
        return self._probe is not None and self._probe.suspensions >= self._probe._at

    def start(self, turn: Coroutine[None, None, None], *, abort: Callable[[], None], name: str) -> None:
        if self._next is not None:
            self._probe, self._next = _Probed(turn, *self._next), None
            turn = _run(self._probe)
        super().start(turn, abort=abort, name=name)


async def _run(probe: _Probed) -> None:
    await probe
