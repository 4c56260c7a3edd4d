"""Warm sessions and admission around an engine of your own, without a server.

Run: python examples/embed_sessions.py
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

from warmlane import Lane, LeaseQuery, Secrets, SessionDefaults, SessionRegistry
from warmlane.clock import SystemClock
from warmlane.conversation.messages import Message, Role, Text
from warmlane.engine.protocol import (
    Chunk,
    Ended,
    EndReason,
    EngineEvent,
    GenerateRequest,
    OwnerId,
    Placed,
    SamplingParams,
)
from warmlane.errors import QueueFull
from warmlane.sessions import effective_capacity


class ShoutingEngine:
    """Your engine: it answers with the prompt in capitals, one token a byte, and remembers each owner's tokens."""

    capacity = 2
    block_paged = True
    generation = 1

    def __init__(self) -> None:
        self._cells: dict[OwnerId, tuple[int, ...]] = {}
        self._serial = 0

    def new_owner(self) -> OwnerId:
        self._serial += 1
        return OwnerId(self.generation, self._serial)

    async def generate(self, request: GenerateRequest) -> AsyncIterator[EngineEvent]:
        held = self._cells.get(request.owner, ())
        pairs = zip(held, request.prompt, strict=False)
        warm = next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(held), len(request.prompt)))
        yield Placed(len(request.prompt), min(warm, len(request.prompt) - 1))
        line = bytes(request.prompt).decode().splitlines()[-1]
        reply = f"\n{line.upper()}!\n".encode()
        self._cells[request.owner] = (*request.prompt, *reply)
        yield Chunk(reply.decode(), len(reply))
        yield Ended(EndReason.STOP, None, len(reply), tuple(reply), reply.decode())

    async def release(self, owner: OwnerId, *, purge: bool = False) -> None:
        self._cells.pop(owner, None)

    async def truncate(self, owner: OwnerId, length: int) -> bool:
        self._cells[owner] = self._cells.get(owner, ())[:length]
        return True

    async def reset(self) -> None:
        self._cells.clear()


class Talk:
    """One lane and one registry before the engine, and the order of a turn between them."""

    def __init__(self) -> None:
        engine, clock = ShoutingEngine(), SystemClock()
        self.secrets = Secrets.in_memory()
        self.lane = Lane(capacity=effective_capacity(engine), max_waiting=2, clock=clock)
        self.registry = SessionRegistry(
            engine,
            secrets=self.secrets,
            clock=clock,
            defaults=SessionDefaults(sampling=SamplingParams(), max_output_tokens=200),
        )

    async def say(self, text: str, *, response_id: str, previous: str | None = None) -> str:
        permit = self.lane.reserve("me")
        query = LeaseQuery(
            tenant="me", domain=self.secrets.domain("me"), previous_response_id=previous, response_id=response_id
        )
        async with self.lane.enter(permit):
            lease = self.registry.lease(query)
            try:
                await self.registry.flush_after_lease(lease)
                history = (*lease.session.history, Message(Role.USER, (Text(text),)))
                prompt = tuple("".join(message.text for message in history).encode())
                reply, cached = "", 0
                try:
                    async with aclosing(lease.session.generate(prompt)) as events:
                        async for event in events:
                            if isinstance(event, Placed):
                                cached = event.cached_tokens
                            elif isinstance(event, Chunk):
                                reply += event.text
                    message = Message(Role.ASSISTANT, (Text(reply),))
                    lease.session.commit((*history, message), len(prompt) + len(reply))
                except BaseException:
                    await self.registry.give_back(lease)
                    raise
                self.registry.adopt(lease).keep()
            finally:
                await self.registry.flush_before_leave(lease)
        print(f"{lease.reason.value:<12} {cached:>3} of {len(prompt):>3} prompt tokens warm: {reply.strip()}")
        return reply


async def main() -> None:
    talk = Talk()
    await talk.say("hello", response_id="r1")
    await talk.say("how are you", response_id="r2", previous="r1")
    await talk.say("and you", response_id="r3", previous="r1")
    permits = [talk.lane.reserve("me") for _ in range(4)]
    try:
        talk.lane.reserve("me")
    except QueueFull as full:
        print(full)
    for permit in permits:
        permit.release()
    print([warm.id for warm in talk.registry.warm_sessions("me")])


if __name__ == "__main__":
    asyncio.run(main())
