"""The spine as the edge sees it: permits, turns, token counts, and responses after their turn."""

from __future__ import annotations

from warmlane.conversation.messages import Message
from warmlane.conversation.turn import TurnRequest
from warmlane.errors import EngineFault, ResponseNotFound, Unavailable
from warmlane.turns.archive import Archived
from warmlane.turns.asked import read_asked
from warmlane.turns.cancel import CancelFlag, TurnCancelled
from warmlane.turns.parts import ModelPermit, SpineParts
from warmlane.turns.service import TurnPermit
from warmlane.turns.stream import TurnStream
from warmlane.turns.turn import Turn


class Spine:
    """Implements `turns.service.TurnService` and `turns.archive.ResponseArchive` over a host and a store."""

    def __init__(self, parts: SpineParts) -> None:
        self._parts = parts
        self._running: dict[tuple[str, str], Turn] = {}

    def domain(self, tenant: str, salt: str | None) -> bytes:
        return self._parts.secrets.domain(tenant, salt)

    def reserve(self, model: str, tenant: str) -> ModelPermit:
        return ModelPermit(self._parts, model, tenant)

    def start(self, request: TurnRequest, permit: TurnPermit) -> TurnStream:
        if not isinstance(permit, ModelPermit):
            raise TypeError("the permit was not taken from this spine")
        parts = self._parts
        stream = TurnStream(drain_timeout_s=parts.drain_timeout_s)
        flag = CancelFlag(parts.clock)
        stream.on_close(lambda: flag.set(TurnCancelled("The client went away.")))
        turn = Turn(parts, request, permit, stream, flag)
        parts.host.tasks.start(
            self._run(turn, request, flag),
            abort=lambda: flag.set(Unavailable("The server shut down before the turn had ended.", retry_after_s=5)),
            name=f"turn {request.response_id}",
        )
        return stream

    def seal(self, domain: bytes, data: bytes) -> str:
        return self._parts.secrets.seal(domain, data)

    def unseal(self, domain: bytes, text: str) -> bytes | None:
        return self._parts.secrets.unseal(domain, text)

    async def count_tokens(self, request: TurnRequest) -> int:
        parts = self._parts
        binding = await parts.host.resolve(request.model)
        return len((await read_asked(parts, binding, request)).prompt)

    async def retrieve(self, response_id: str, tenant: str) -> Archived:
        row = await self._parts.store.get(response_id, tenant, now=self._parts.unix_now())
        if row is None:
            raise ResponseNotFound(response_id)
        return Archived(row.id, row.echo, row.outcome, row.created_at, row.input)

    async def conversation(self, response_id: str, tenant: str) -> tuple[Message, ...]:
        chain = await self._parts.store.history(response_id, tenant, now=self._parts.unix_now())
        if chain is None:
            raise ResponseNotFound(response_id)
        return chain.messages[:-1]

    async def delete(self, response_id: str, tenant: str) -> None:
        running = self._running.get((tenant, response_id))
        if running is not None:
            running.delete()
        warm = [b.registry.drop(response_id, tenant=tenant) for b in self._parts.host.bindings()]
        stored = await self._parts.store.delete(response_id, tenant)
        if not (stored or any(warm) or running):
            raise ResponseNotFound(response_id)
        self._parts.traces.forget(response_id)

    async def _run(self, turn: Turn, request: TurnRequest, flag: CancelFlag) -> None:
        key = (request.tenant, request.response_id)
        self._running[key] = turn
        try:
            await self._within_limit(turn, flag)
        finally:
            del self._running[key]

    async def _within_limit(self, turn: Turn, flag: CancelFlag) -> None:
        limit_s = self._parts.turn_timeout_s
        if limit_s is None:
            await turn.run()
            return
        error = EngineFault(f"The turn took longer than {limit_s:g} s.")
        timer = flag.set_at(self._parts.clock.now() + limit_s, error)
        try:
            await turn.run()
        finally:
            timer.cancel()
