"""An engine for tests of sessions: it keeps who owns how many cells, and every call can be held, failed or hung."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

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
from warmlane.errors import EngineFault
from warmlane.sessions import SessionDefaults

DEFAULTS = SessionDefaults(sampling=SamplingParams(temperature=0.5, top_k=7), max_output_tokens=100)


@dataclass(eq=False)
class HeldCall:
    """A call of the engine that waits for the test to let it go."""

    op: str
    owner: OwnerId | None
    future: asyncio.Future[None] = field(repr=False)

    def succeed(self) -> None:
        if not self.future.done():
            self.future.set_result(None)

    def fail(self) -> None:
        if not self.future.done():
            self.future.set_exception(EngineFault(f"{self.op} failed on purpose"))


class OwnerEngine:
    """Calls whose op is in `hold` wait until the test lets them go; those in `failing` raise. `log` keeps what was
    done. `cells` maps an owner to the length of its cells; on a flat engine a turn empties all others."""

    def __init__(self, *, capacity: object = 1, block_paged: object = None) -> None:
        self.capacity = capacity
        self.block_paged = (isinstance(capacity, int) and capacity > 1) if block_paged is None else block_paged
        self.generation = 1
        self.cells: dict[OwnerId, int] = {}
        self.requests: list[GenerateRequest] = []
        self.log: list[tuple[str, OwnerId | None]] = []
        self.purged: list[OwnerId] = []
        self.hold: set[str] = set()
        self.failing: set[str] = set()
        self.held: list[HeldCall] = []
        self.truncates = True
        self._serial = 0

    def new_owner(self) -> OwnerId:
        self._serial += 1
        return OwnerId(self.generation, self._serial)

    def restart(self) -> int:
        """The worker dies with its cells; the generation that died."""
        dead = self.generation
        self.generation += 1
        self.cells.clear()
        return dead

    async def generate(self, request: GenerateRequest) -> AsyncIterator[EngineEvent]:
        self.requests.append(request)
        if self.capacity == 1:
            self.cells = {owner: n for owner, n in self.cells.items() if owner == request.owner}
        self.cells[request.owner] = len(request.prompt)
        yield Placed(len(request.prompt), 0)
        await self._gate("generate", request.owner)
        yield Chunk("ok", 1)
        self.cells[request.owner] = len(request.prompt) + 1
        yield Ended(EndReason.STOP, None, 1, (1,), "ok")

    async def release(self, owner: OwnerId, *, purge: bool = False) -> None:
        await self._gate("release", owner)
        if purge:
            self.purged.append(owner)
        self.cells.pop(owner, None)

    async def truncate(self, owner: OwnerId, length: int) -> bool:
        await self._gate("truncate", owner)
        if self.truncates and owner in self.cells:
            self.cells[owner] = min(length, self.cells[owner])
        return self.truncates

    async def reset(self) -> None:
        await self._gate("reset", None)
        self.cells.clear()

    async def _gate(self, op: str, owner: OwnerId | None) -> None:
        self.log.append((op, owner))
        if op in self.failing:
            raise EngineFault(f"{op} failed on purpose")
        if op in self.hold:
            call = HeldCall(op, owner, asyncio.get_running_loop().create_future())
            self.held.append(call)
            try:
                await call.future
            finally:
                self.held.remove(call)
