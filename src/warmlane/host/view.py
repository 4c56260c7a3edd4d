"""What the HTTP edge may ask about the models of this server, as a protocol."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ModelCard:
    """One served model. `created` is in Unix seconds; `context_window` in tokens, None as long as the model was not
    loaded. `temperature` and `top_p` are what a request that names none is sampled with."""

    id: str
    created: int
    context_window: int | None
    temperature: float = 1.0
    top_p: float = 1.0


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether a turn could be taken now, and if not, why. Counts are those of the lane: `limit` is `max_waiting`."""

    ready: bool
    reason: str
    active: int
    waiting: int
    permits: int
    capacity: int
    limit: int | None


@dataclass(frozen=True, slots=True)
class SessionCard:
    """One warm session: no text. `age_s` is the time since its last turn, `tokens` the length of its cells."""

    id: str
    model: str
    age_s: float
    tokens: int


class HostView(Protocol):
    def models(self) -> list[ModelCard]:
        """Every model a request may name, the default one first."""
        ...

    def canonical(self, name: str) -> str:
        """The served name that `name` is an alias of; `name` itself if it is served, or stands for nothing."""
        ...

    def card(self, name: str) -> ModelCard | None:
        """The card of a served name."""
        ...

    def sessions(self, tenant: str | None) -> list[SessionCard]:
        """This tenant's warm sessions, least recently used first; every tenant's for None (an admin)."""
        ...

    def end_session(self, session_id: str, tenant: str | None) -> bool:
        """Give up a warm session and its cells; one that runs is given up when its turn ends. False if there is none
        of that id for this tenant (any, for None)."""
        ...

    def readiness(self) -> Readiness:
        """Of the default model."""
        ...

    def on_drain(self, tell: Callable[[], None]) -> Callable[[], None]:
        """Call `tell` when the server begins to shut down, at once if it does already. Calling what is returned takes
        the wish back."""
        ...
