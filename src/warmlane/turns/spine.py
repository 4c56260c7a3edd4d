"""The spine as the edge sees it: permits, turns, token counts, and responses after their turn."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from warmlane.conversation.messages import Message
from warmlane.conversation.turn import TurnRequest
from warmlane.errors import ResponseNotFound, TurnTimeout, Unavailable
from warmlane.store import InUse
from warmlane.turns.archive import Archived, Erasure
from warmlane.turns.asked import read_asked
from warmlane.turns.cancel import CancelFlag, TurnCancelled
from warmlane.turns.erasure import drop_warm, erase_tenant, forget_turn
from warmlane.turns.parts import ModelPermit, SpineParts
from warmlane.turns.service import TurnPermit
from warmlane.turns.stream import TurnStream
from warmlane.turns.turn import Turn

STOP_TIMEOUT_S: Final = 5.0
"""How long an erasure waits for the tenant's turns to end."""


@dataclass(frozen=True, slots=True)
class _Running:
    turn: Turn
    ended: asyncio.Event = field(default_factory=asyncio.Event)


class Spine:
    """Implements `turns.service.TurnService` and `turns.archive.ResponseArchive` over a host and a store."""

    def __init__(self, parts: SpineParts) -> None:
        self._parts = parts
        self._running: dict[tuple[str, str], _Running] = {}

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

    def attend(self, work: Coroutine[None, None, None], *, name: str) -> None:
        self._parts.host.tasks.start(work, abort=lambda: None, name=name)

    def cancel(self, response_id: str, tenant: str) -> bool:
        running = self._running.get((tenant, response_id))
        if running is not None:
            running.turn.cancel()
        return running is not None

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
        return Archived(row.id, row.echo, row.outcome, row.created_at, row.input, row.status.value, row.error)

    async def conversation(self, response_id: str, tenant: str) -> tuple[Message, ...]:
        chain = await self._parts.store.history(response_id, tenant, now=self._parts.unix_now())
        if chain is None:
            raise ResponseNotFound(response_id)
        return chain.messages[:-1]

    async def delete(self, response_id: str, tenant: str) -> None:
        parts, store = self._parts, self._parts.store
        running = self._running.get((tenant, response_id))
        if running is not None:
            running.turn.delete()
        warm = drop_warm(parts, [response_id], tenant)
        now = parts.unix_now()
        row = await store.get(response_id, tenant, now=now)
        stored = await store.delete(response_id, tenant)
        if not (stored or warm or running):
            raise ResponseNotFound(response_id)
        if row is not None and not warm:
            if running is not None:
                await _ended([running])  # before that nobody knows what it leaves
            previous = row.previous_response_id
            await forget_turn(parts, row, await store.get(previous, tenant, now=now) if previous else None)

    async def erase(self, tenant: str) -> Erasure:
        mine = [(key, running) for key, running in self._running.items() if key[0] == tenant]
        for (_, response_id), running in mine:
            running.turn.delete()
            drop_warm(self._parts, [response_id], tenant)
        await _ended([running for _, running in mine])
        erased = await erase_tenant(self._parts, tenant)
        return Erasure(len(erased.response_ids), len(erased.conversation_ids))

    async def tidy(self, *, max_bytes: int | None = None) -> int:
        """Delete the rows that have expired or are too many, and free what was warm for them. Returns how many went.

        Raises `StoreUnavailable`.
        """
        gone = await self._parts.store.prune(now=self._parts.unix_now(), max_bytes=max_bytes, in_use=self._in_use)
        drop_warm(self._parts, gone, None)
        self._parts.leftovers.forget(gone)
        return len(gone)

    def _in_use(self) -> InUse:
        turns = [running.turn for running in self._running.values()]
        return InUse(
            responses=[key for turn in turns if (key := turn.continues)],
            conversations=[key for turn in turns if (key := turn.speaks_in)],
        )

    async def _run(self, turn: Turn, request: TurnRequest, flag: CancelFlag) -> None:
        key = (request.tenant, request.response_id)
        running = self._running[key] = _Running(turn)
        try:
            await self._within_limit(turn, flag)
        finally:
            del self._running[key]
            running.ended.set()

    async def _within_limit(self, turn: Turn, flag: CancelFlag) -> None:
        limit_s = self._parts.turn_timeout_s
        if limit_s is None:
            await turn.run()
            return
        timer = flag.set_at(self._parts.clock.now() + limit_s, TurnTimeout(limit_s))
        try:
            await turn.run()
        finally:
            timer.cancel()


async def _ended(turns: Iterable[_Running]) -> None:
    """Wait for turns that were told to stop. One whose client does not read may take longer; it commits nothing any
    more."""
    with suppress(TimeoutError):
        async with asyncio.timeout(STOP_TIMEOUT_S):
            for running in turns:
                await running.ended.wait()
