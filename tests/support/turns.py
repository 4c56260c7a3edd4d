"""Short ways to run turns on a registry in tests."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass, field

from support.clock import VirtualClock
from support.owner_engine import DEFAULTS, OwnerEngine
from warmlane.conversation.messages import Message, Role, Text
from warmlane.sessions import Adoption, Lease, LeaseQuery, Secrets, SessionRegistry


def user(text: str) -> Message:
    return Message(Role.USER, (Text(text),))


def assistant(text: str) -> Message:
    return Message(Role.ASSISTANT, (Text(text),))


async def ticks(n: int = 8) -> None:
    for _ in range(n):
        await asyncio.sleep(0)


@dataclass
class Desk:
    """A registry over an `OwnerEngine`, with a clock moved by hand."""

    capacity: int = 4
    warm_capacity: int = 64
    key_reuse: bool = True
    clock: VirtualClock = field(default_factory=VirtualClock)
    secrets: Secrets = field(default_factory=lambda: Secrets(bytes(32)))

    def __post_init__(self) -> None:
        self.engine = OwnerEngine(capacity=self.capacity)
        self.registry = SessionRegistry(
            self.engine,
            secrets=self.secrets,
            clock=self.clock,
            defaults=DEFAULTS,
            warm_capacity=self.warm_capacity,
            key_reuse=self.key_reuse,
        )

    def query(
        self,
        response_id: str | None = None,
        *,
        previous: str | None = None,
        key: str | None = None,
        history: tuple[Message, ...] = (),
        instructions: str | None = None,
        tenant: str = "ann",
        salt: str | None = None,
        stateless: bool = False,
        other_model: bool = False,
    ) -> LeaseQuery:
        return LeaseQuery(
            tenant=tenant,
            domain=self.secrets.domain(tenant, salt),
            instructions=instructions,
            previous_response_id=previous,
            prompt_cache_key=key,
            history=history,
            stateless=stateless,
            response_id=response_id,
            other_model=other_model,
        )

    async def run(self, lease: Lease, reply: str = "ok", *, tokens: int = 4) -> None:
        """The turn itself, to its commit."""
        async with aclosing(lease.session.generate((1, 2, 3))) as events:
            async for _ in events:
                pass
        lease.session.commit((*lease.session.history, assistant(reply)), tokens)

    async def turn(
        self, query: LeaseQuery, *, retention_s: float | None = None, tokens: int = 4
    ) -> tuple[Lease, Adoption]:
        """A whole turn, kept."""
        lease = self.registry.lease(query)
        if not lease.hit:
            lease.session.prime(query.history)
        await self.registry.flush_after_lease(lease)
        await self.run(lease, tokens=tokens)
        adoption = self.registry.adopt(lease, retention_s=retention_s)
        adoption.keep()
        await self.registry.flush_before_leave(lease)
        return lease, adoption
