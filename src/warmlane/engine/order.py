"""Which turns run, which wait, and who gives way to whom."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from warmlane.engine.turn import Turn


class Order:
    """The turns of one scheduler: `decoding` ones, and those in the `queue`, where one that was placed computes its
    prompt. A seat is one of each kind that has a chain; there are `capacity` of them.

    Turns are served first come first served, the `spare` ones behind all others; and a spare turn gives its seat back
    to one that is not.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self.queue: deque[Turn] = deque()
        self.decoding: list[Turn] = []

    def __iter__(self) -> Iterator[Turn]:
        return iter((*self.decoding, *self.queue))

    @property
    def any(self) -> bool:
        """Whether there is a turn at all."""
        return bool(self.queue or self.decoding)

    @property
    def placed(self) -> list[Turn]:
        """Those that hold a seat, in the order of their arrival."""
        return sorted((t for t in self if t.chain is not None), key=lambda t: t.id)

    @property
    def free_seats(self) -> int:
        return self._capacity - len(self.decoding) - sum(t.chain is not None for t in self.queue)

    @property
    def waiting(self) -> tuple[Turn, ...]:
        """The ready turns of the queue, in the order in which they are served."""
        return tuple(sorted((t for t in self.queue if t.ready), key=lambda t: t.request.spare))

    def find(self, turn_id: int) -> Turn | None:
        return next((t for t in self if t.id == turn_id), None)

    def start_decoding(self, turn: Turn) -> None:
        """The turn's prompt is computed; a no-op for one that decodes already."""
        if turn in self.queue:
            self.queue.remove(turn)
            self.decoding.append(turn)

    def requeue(self, turn: Turn, *, first: bool) -> None:
        """Put the turn at the head or at the end of the queue."""
        self.remove(turn)
        self.queue.appendleft(turn) if first else self.queue.append(turn)

    def remove(self, turn: Turn) -> None:
        self.decoding.remove(turn) if turn in self.decoding else self.queue.remove(turn)

    def newest(self, *, spare: bool = False) -> Turn | None:
        """The placed turn that gives way first: the newest spare one, else the newest, unless only a `spare` one
        will do."""
        placed = self.placed
        spares = [t for t in placed if t.request.spare]
        candidates = spares if spares or spare else placed
        return candidates[-1] if candidates else None

    def out_of_seat(self) -> Turn | None:
        """A spare turn whose seat another one is waiting for."""
        wanted = sum(t.ready and t.chain is None and not t.request.spare for t in self.queue)
        return self.newest(spare=True) if wanted > max(0, self.free_seats) else None
