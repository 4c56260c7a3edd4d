"""Flat or paged: told by what the engine reports, never by its name."""

from __future__ import annotations

from typing import Protocol


class ReportsPaging(Protocol):
    """What is asked of an engine here. Both values are judged, not trusted, hence their types."""

    @property
    def block_paged(self) -> object: ...

    @property
    def capacity(self) -> object: ...


def effective_capacity(engine: ReportsPaging) -> int:
    """How many turns may run at once: the reported capacity of a paged engine, 1 for any other. Never raises.

    Paged means that `block_paged` is True itself and `capacity` an int, not a bool, of at least 2.
    """
    capacity = engine.capacity
    if engine.block_paged is True and isinstance(capacity, int) and not isinstance(capacity, bool) and capacity >= 2:
        return capacity
    return 1


def is_paged(engine: ReportsPaging) -> bool:
    """Whether a scheduler isolates live turns by owner, so that several sessions can be warm at once."""
    return effective_capacity(engine) > 1
