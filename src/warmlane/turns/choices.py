"""The replies to one prompt: one or several, within the turn's one seat.

On a paged engine those beside the first run on sequences of their own, where no other turn wants the seat, from the
prompt that the first has computed. A flat engine has one sequence: there they come in turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from msgspec import structs

from warmlane.conversation.events import Delta, OtherChoice, Started, TurnEvent
from warmlane.conversation.turn import Choice, Sampling, TurnRequest, Usage
from warmlane.engine.protocol import EngineEvent, PinnedPrefix, Placed, ThoughtLimit
from warmlane.errors import EngineFault
from warmlane.sessions import ChatSession
from warmlane.turns.reply import Reply

SEEDS = 2**64
SEED_STEP = 0x9E3779B97F4A7C15
"""From the seed of one choice to that of the next: 2^64 by the golden ratio, as in SplitMix64 (Steele et al., 2014). It
is odd, so that the seeds all differ, and large, so that they are not those of a request with the next seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What the engine is asked, the same for every choice but for its seed."""

    request: TurnRequest
    prompt: tuple[int, ...]
    stop: tuple[str, ...]
    grammar: str | None
    special_text: bool
    pins: tuple[PinnedPrefix, ...]
    thought: ThoughtLimit | None

    def generate(self, session: ChatSession, index: int, *, spare: bool) -> AsyncGenerator[EngineEvent, None]:
        request = self.request
        return session.generate(
            self.prompt,
            sampling=seeded(request.sampling, index, default=session.defaults.sampling.seed),
            max_output_tokens=request.max_output_tokens,
            stop=self.stop,
            grammar=self.grammar,
            top_logprobs=request.top_logprobs,
            special_text=self.special_text,
            pins=() if index else self.pins,
            spare=spare,
            thought=self.thought,
        )


def seeded(sampling: Sampling, index: int, *, default: int | None = None) -> Sampling:
    """The settings of choice number `index`: the first has the seed that was asked for, by itself the `default`."""
    seed = default if sampling.seed is None else sampling.seed
    if seed is None or index == 0:
        return sampling
    return structs.replace(sampling, seed=(seed + index * SEED_STEP) % SEEDS)


class Choices:
    """Makes the `replies` of one turn, the first of which the conversation goes on from. `tell` hands on what they say,
    and may wait."""

    def __init__(self, ask: Ask, replies: Sequence[Reply], tell: Callable[[TurnEvent], Awaitable[None]]) -> None:
        self._ask = ask
        self._replies = replies
        self._tell = tell
        self._leading: Reply | None = None
        self._placed = asyncio.Event()
        self._in_turn = False

    @property
    def first(self) -> Reply:
        return self._replies[0]

    @property
    def leading(self) -> Reply:
        """The reply for which the prompt was computed. Raises `EngineFault` if none was placed."""
        if self._leading is None:
            raise EngineFault("The engine ended the turn without saying how.")
        return self._leading

    @property
    def spent(self) -> Usage | None:
        """What all have cost so far; None if none ever began."""
        if self._leading is None:
            return None
        placed, readers = self._leading.placed, [reply.reader for reply in self._replies]
        return Usage(
            placed.prompt_tokens,
            placed.cached_tokens,
            sum(reader.n_tokens for reader in readers),
            sum(reader.reasoning_tokens for reader in readers),
        )

    @property
    def usage(self) -> Usage:
        """What all have cost, the prompt counted once. Raises `EngineFault` if one has not ended."""
        placed = self.leading.placed
        return Usage(
            placed.prompt_tokens,
            placed.cached_tokens,
            sum(reply.ending().output_tokens for reply in self._replies),
            sum(reply.reader.reasoning_tokens for reply in self._replies),
        )

    @property
    def decode_ms(self) -> float:
        together = sum if self._in_turn else max
        return together(reply.ending().decode_ms for reply in self._replies)

    def others(self, tokenizer: str) -> tuple[Choice, ...]:
        """The replies beside the first."""
        return tuple(
            Choice(message=reply.message(tokenizer), stop_reason=reply.stop_reason, logprobs=reply.reader.logprobs)
            for reply in self._replies[1:]
        )

    async def in_turn(self, session: ChatSession) -> None:
        """One after the other in the session's own cells. The first comes last: it is what they hold in the end."""
        self._in_turn = True
        for index in (*range(1, len(self._replies)), 0):
            await self._say(index, session)
            if index:
                session.set_aside()

    async def at_once(self, session: ChatSession, *, discard: Callable[[ChatSession], None]) -> None:
        """The first in the session's own cells, the others in those of siblings, which are handed to `discard`."""
        if len(self._replies) == 1:
            await self._say(0, session)
            return
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._say(0, session))
                for index in range(1, len(self._replies)):
                    group.create_task(self._beside(index, session, discard))
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None

    async def _beside(self, index: int, session: ChatSession, discard: Callable[[ChatSession], None]) -> None:
        await self._placed.wait()
        sibling = session.sibling()
        try:
            await self._say(index, sibling, spare=True)
        finally:
            discard(sibling)

    async def _say(self, index: int, session: ChatSession, *, spare: bool = False) -> None:
        reply = self._replies[index]
        async with aclosing(self._ask.generate(session, index, spare=spare)) as events:
            async for event in events:
                if isinstance(event, Placed) and self._leading is None:
                    self._leading = reply
                for told in reply.hear(event):
                    await self._tell_of(index, told)
                self._placed.set()
                if reply.cut:
                    break
        if reply.cut:
            session.end_here()

    async def _tell_of(self, index: int, told: Started | Delta) -> None:
        if isinstance(told, Started):
            if self._leading is self._replies[index]:
                await self._tell(told)
        else:
            await self._tell(OtherChoice(index, told) if index else told)
