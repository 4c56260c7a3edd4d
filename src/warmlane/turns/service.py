"""What the HTTP edge asks of the spine, as a protocol: so the edge is tested without one."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Protocol

from warmlane.conversation.turn import TurnRequest
from warmlane.turns.stream import TurnStream


class TurnPermit(Protocol):
    """A place in a model's admission budget, taken before any awaitable work."""

    def release(self) -> None:
        """Give the place back. Idempotent, and a no-op once a turn has taken it over."""
        ...


class TurnService(Protocol):
    """The one path of a turn."""

    def domain(self, tenant: str, salt: str | None) -> bytes:
        """The 16-byte security domain of a tenant and the client's `cache_salt`, if any."""
        ...

    def reserve(self, model: str, tenant: str) -> TurnPermit:
        """Take a permit, synchronously: call it in the same stretch that reads `model` out of the body.

        Raises `ModelNotFound`, `QueueFull` or `Unavailable`; then nothing was changed.
        """
        ...

    def start(self, request: TurnRequest, permit: TurnPermit) -> TurnStream:
        """Start the turn in a task of the host's; the permit is the turn's from here on."""
        ...

    def attend(self, work: Coroutine[None, None, None], *, name: str) -> None:
        """Do `work`, which reads a turn of no connection, to its end; a shutdown waits for it. It must handle its own
        errors."""
        ...

    def cancel(self, response_id: str, tenant: str) -> bool:
        """Have the turn that runs under this id stop, unless it has committed. False if there is none."""
        ...

    def seal(self, domain: bytes, data: bytes) -> str:
        """`data` as opaque, authenticated text that a client may carry for us, bound to the domain."""
        ...

    def unseal(self, domain: bytes, text: str) -> bytes | None:
        """What was sealed; None for a text that was not sealed here for this domain, or was changed since."""
        ...

    async def count_tokens(self, request: TurnRequest) -> int:
        """How many prompt tokens `start` would prefill cold for this request, history included.

        Raises `ModelNotFound`, `PreviousResponseNotFound`, `InvalidRequest` or `Unavailable`.
        """
        ...
