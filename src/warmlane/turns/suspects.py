"""Remembers turns that ran when a worker died, so that one that kills its worker does not do so for ever.

The blame for a death is shared among the turns that ran: one that was alone bears it whole. A turn that bears the equal
of two deaths is refused; one that succeeds bears none. A worker that somebody killed counts little: it may have been an
operator, or the kernel for the memory of others.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from warmlane.errors import InvalidRequest

REFUSED_FROM = 2
KILLED_SHARE = Fraction(1, 4)
"""What a kill counts, in deaths."""
REMEMBERED = 256

Fingerprint = bytes


def fingerprint(domain: bytes, prompt: npt.NDArray[np.int32]) -> Fingerprint:
    """Of a turn: the same prompt in the same domain."""
    return hashlib.blake2b(prompt.tobytes(), key=domain, digest_size=16).digest()


class Suspects:
    """The turns of one model that run, and the blame of those that once did. The oldest of 256 is forgotten first."""

    def __init__(self) -> None:
        self._running: dict[Fingerprint, int] = {}
        self._blame: OrderedDict[Fingerprint, Fraction] = OrderedDict()

    def check(self, turn: Fingerprint) -> None:
        """Raises `InvalidRequest` for a turn that is known to kill its worker."""
        if self._blame.get(turn, 0) >= REFUSED_FROM:
            raise InvalidRequest("This request has ended the engine's process too often and is not run again.")

    @contextmanager
    def watched(self, turn: Fingerprint) -> Iterator[None]:
        """The engine runs the turn inside. Leaving without an error clears it."""
        self._running[turn] = self._running.get(turn, 0) + 1
        try:
            yield
            self._blame.pop(turn, None)
        finally:
            left = self._running.pop(turn) - 1
            if left:
                self._running[turn] = left

    def worker_died(self, *, killed: bool = False) -> None:
        """To be called at a death, before the turns that ran have heard of it. `killed`: by a signal that nothing in
        the process sends."""
        death = KILLED_SHARE if killed else Fraction(1)
        for turn in self._running:
            self._blame[turn] = self._blame.get(turn, Fraction()) + death / len(self._running)
            self._blame.move_to_end(turn)
        while len(self._blame) > REMEMBERED:
            self._blame.popitem(last=False)
