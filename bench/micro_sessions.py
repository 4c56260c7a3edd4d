"""What a turn pays for sessions and admission: lookup + reserve + enter + leave + adopt, uncontended.

Run: python bench/micro_sessions.py. Microseconds a turn, the best of several rounds, on a paged registry whose warm
entries are as many as the column says. "key and salt" includes scoping both once a request.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine

from warmlane.clock import SystemClock
from warmlane.conversation.messages import Message, Role, Text
from warmlane.engine.protocol import EngineEvent, GenerateRequest, OwnerId, SamplingParams
from warmlane.sessions import Lane, LeaseQuery, Secrets, SessionDefaults, SessionRegistry

WARM_COUNTS = (1, 16, 64, 1024)
TURNS = 100
"""Few, so that a round is over before the system gives its core to someone else."""

ROUNDS = 300
HISTORY = tuple(Message(role, (Text(f"message {n}"),)) for n in range(4) for role in (Role.USER, Role.ASSISTANT))


class IdleEngine:
    """Owners without cells: the bench measures the bookkeeping alone."""

    capacity = 8
    block_paged = True
    generation = 1

    def __init__(self) -> None:
        self._serial = 0

    def new_owner(self) -> OwnerId:
        self._serial += 1
        return OwnerId(self.generation, self._serial)

    async def generate(self, request: GenerateRequest) -> AsyncIterator[EngineEvent]:
        raise NotImplementedError
        yield

    async def release(self, owner: OwnerId, *, purge: bool = False) -> None: ...

    async def truncate(self, owner: OwnerId, length: int) -> bool:
        return True

    async def reset(self) -> None: ...


class Desk:
    """A registry with `n_warm` entries and the lane before it."""

    def __init__(self, n_warm: int) -> None:
        clock = SystemClock()
        self.secrets = Secrets.in_memory()
        defaults = SessionDefaults(sampling=SamplingParams(), max_output_tokens=256)
        self.registry = SessionRegistry(
            IdleEngine(), secrets=self.secrets, clock=clock, defaults=defaults, warm_capacity=n_warm
        )
        self.lane = Lane(capacity=8, max_waiting=16, clock=clock)
        for n in range(n_warm):
            query = LeaseQuery(tenant="tenant", domain=self.secrets.domain("tenant"), prompt_cache_key=f"other key {n}")
            self.registry.adopt(self.registry.lease(query), f"warm-{n}")

    async def chained(self, turns: int) -> None:
        """Turns that each continue the one before by its id: no key, no salt."""
        registry, lane, domain = self.registry, self.lane, self.secrets.domain("tenant")
        previous = "warm-0"
        for n in range(turns):
            permit = lane.reserve("tenant")
            async with lane.enter(permit):
                query = LeaseQuery(tenant="tenant", domain=domain, previous_response_id=previous, history=HISTORY)
                lease = registry.lease(query)
                previous = f"turn-{n}"
                registry.adopt(lease, previous).keep()
            assert lease.hit
        registry.adopt(registry.lease(query_for(previous, domain)), "warm-0")

    async def keyed(self, turns: int) -> None:
        """Turns that find their session by cache key in a salted domain, both scoped anew each time."""
        registry, lane, secrets = self.registry, self.lane, self.secrets
        key, salt = "the key of this agent", "a salt of a user"
        domain = secrets.domain("tenant", salt)
        lease = registry.lease(LeaseQuery(tenant="tenant", domain=domain, prompt_cache_key=key, history=HISTORY))
        if not lease.hit:
            lease.session.prime(HISTORY)
        registry.adopt(lease, "keyed")
        for n in range(turns):
            permit = lane.reserve("tenant")
            async with lane.enter(permit):
                domain = secrets.domain("tenant", salt)
                query = LeaseQuery(tenant="tenant", domain=domain, prompt_cache_key=key, history=HISTORY)
                lease = registry.lease(query)
                registry.adopt(lease, f"turn-{n}").keep()
            assert lease.hit


def query_for(previous: str, domain: bytes) -> LeaseQuery:
    return LeaseQuery(tenant="tenant", domain=domain, previous_response_id=previous)


async def best_us(turns: Callable[[int], Coroutine[None, None, None]]) -> float:
    """Microseconds a turn, of the fastest round."""
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        await turns(TURNS)
        best = min(best, time.perf_counter() - start)
    return best / TURNS * 1e6


def main() -> None:
    print(f"{'warm entries':<26}" + "".join(f"{n:>9}" for n in WARM_COUNTS))
    desks = [Desk(n) for n in WARM_COUNTS]
    print(f"{'previous_response_id, us':<26}" + "".join(f"{asyncio.run(best_us(desk.chained)):9.1f}" for desk in desks))
    print(f"{'key and salt, us':<26}" + "".join(f"{asyncio.run(best_us(desk.keyed)):9.1f}" for desk in desks))


if __name__ == "__main__":
    main()
