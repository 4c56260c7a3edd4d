"""Responses after their turn: what the edge may ask of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from warmlane.conversation.messages import Message
from warmlane.conversation.turn import Outcome


@dataclass(frozen=True, slots=True)
class Archived:
    """A stored response. `echo` is the dialect's own JSON of the request, `completed_at` in Unix seconds, `input` what
    this response added to what it continues. One in the background has no outcome before it has ended well: `status`
    says where it is, and if it did not end well, `error` is the dialect's own JSON of why, and of what there was by
    then."""

    id: str
    echo: bytes
    outcome: Outcome | None
    completed_at: float
    input: tuple[Message, ...]
    status: str = "completed"
    error: bytes | None = None


@dataclass(frozen=True, slots=True)
class Erasure:
    """How many responses and conversation objects were deleted."""

    responses: int
    conversations: int


class ResponseArchive(Protocol):
    """Stored responses, each its tenant's own: a foreign id is answered like an unknown one."""

    async def retrieve(self, response_id: str, tenant: str) -> Archived:
        """Raises `ResponseNotFound` or `Unavailable`."""
        ...

    async def conversation(self, response_id: str, tenant: str) -> tuple[Message, ...]:
        """Every message the response answered: those of the responses it continues, then its own input.

        Raises `ResponseNotFound`, also where a response it continues is gone, or `Unavailable`.
        """
        ...

    async def delete(self, response_id: str, tenant: str) -> None:
        """Delete the row, its warm session and its cells; a turn that still runs under the id is stopped.

        Raises `ResponseNotFound` or `Unavailable`.
        """
        ...

    async def erase(self, tenant: str) -> Erasure:
        """Delete everything of a tenant: stored rows, warm sessions, cells in every tier of the loaded models. Its
        turns that run are stopped first.

        Raises `StoreUnavailable`, and `Unavailable` if an engine did not forget; what is left can be asked for again.
        """
        ...
