"""One conversation on one model. It owns no KV memory: the engine does, under the session's owner id."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

import msgspec

from warmlane.conversation.messages import Message
from warmlane.conversation.turn import Sampling
from warmlane.engine.protocol import (
    CacheOwnerEngine,
    Ended,
    EngineEvent,
    GenerateRequest,
    OwnerId,
    PinnedPrefix,
    SamplingParams,
    ThoughtLimit,
)
from warmlane.errors import EngineError, SessionBusy, SessionDisposed, SessionError

logger = logging.getLogger(__name__)


class SessionEngine(CacheOwnerEngine, Protocol):
    """The part of an engine a session drives: `engine.protocol.Engine` without tokenizer and facts."""

    def new_owner(self) -> OwnerId: ...

    def generate(self, request: GenerateRequest) -> AsyncIterator[EngineEvent]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionDefaults:
    """What a model gives its sessions: sampling for what the client leaves open, and the most tokens of one turn."""

    sampling: SamplingParams
    max_output_tokens: int


def resolve_sampling(client: Sampling, defaults: SamplingParams) -> SamplingParams:
    """The client's values, field by field, over the defaults."""
    if client == Sampling():
        return defaults
    return SamplingParams(
        temperature=defaults.temperature if client.temperature is None else client.temperature,
        top_p=defaults.top_p if client.top_p is None else client.top_p,
        top_k=defaults.top_k if client.top_k is None else client.top_k,
        min_p=defaults.min_p if client.min_p is None else client.min_p,
        presence_penalty=defaults.presence_penalty if client.presence_penalty is None else client.presence_penalty,
        frequency_penalty=defaults.frequency_penalty if client.frequency_penalty is None else client.frequency_penalty,
        seed=defaults.seed if client.seed is None else client.seed,
    )


class _Committed(msgspec.Struct, frozen=True):
    """The state a rollback returns to."""

    history: tuple[Message, ...]
    turns: int
    tokens: int


_START = _Committed((), 0, 0)


class Hold(Enum):
    """In whose hands a session is: of whoever made it, of a lease's caller, or of the registry."""

    FREE = auto()
    LEASED = auto()
    KEPT = auto()


class ChatSession:
    """History, owner and turn counter of one conversation.

    A turn is `generate` (to its `Ended` event) and then `commit`, or `rollback`. Single flight: while one call runs,
    another raises `SessionBusy`. The domain is fixed for life, so a live owner never changes it. While the registry
    keeps the session, whoever held it before gets `SessionError`.
    """

    __slots__ = (
        "_aside", "_busy", "_committed", "_disposed", "_ended", "_engine", "_open", "_owners", "defaults", "domain",
        "history", "hold", "owner", "purge",
    )  # fmt: skip

    def __init__(
        self, engine: SessionEngine, *, domain: bytes, defaults: SessionDefaults, hold: Hold = Hold.FREE
    ) -> None:
        self._engine = engine
        self._committed = _START
        self._owners: list[OwnerId] = []
        self._busy = False
        self._open = False
        self._ended = False
        self._aside = False
        self._disposed = False
        self.domain = domain
        self.defaults = defaults
        self.hold = hold
        self.purge = False
        """Whether releasing drops the cells at once, instead of leaving them as an idle prefix of the domain."""
        self.owner: OwnerId | None = None
        self.history: tuple[Message, ...] = ()

    @property
    def turns(self) -> int:
        """Committed turns."""
        return self._committed.turns

    @property
    def tokens(self) -> int:
        """Length of the owner's cells after the last committed turn."""
        return self._committed.tokens

    @property
    def busy(self) -> bool:
        return self._busy

    @property
    def turn_open(self) -> bool:
        """Whether a turn was started and neither committed nor rolled back."""
        return self._open

    @property
    def disposed(self) -> bool:
        return self._disposed

    @property
    def owners(self) -> tuple[OwnerId, ...]:
        """Every owner this session established and has not released yet."""
        return tuple(self._owners)

    def prime(self, history: tuple[Message, ...]) -> None:
        """Give a session that has run no turn the history it continues. Raises `SessionError` later."""
        self._check_usable()
        if self.turns or self._open:
            raise SessionError("A session can be primed only before its first turn.")
        self.history = history

    def rebase(self, history: tuple[Message, ...]) -> None:
        """Continue from the request's own history: the lease gave KV, and the engine keeps the cells whose tokens
        agree. Only on a leased session; a rollback undoes it."""
        self._check_usable()
        if self.hold is not Hold.LEASED:
            raise SessionError("Only a leased session can be rebased.")
        if self._open:
            raise SessionError("A session cannot be rebased within a turn.")
        self.history = history

    async def generate(
        self,
        prompt: tuple[int, ...],
        *,
        sampling: Sampling = Sampling(),  # noqa: B008 (a frozen struct)
        max_output_tokens: int | None = None,
        stop: tuple[str, ...] = (),
        grammar: str | None = None,
        top_logprobs: int | None = None,
        special_text: bool = False,
        pins: tuple[PinnedPrefix, ...] = (),
        spare: bool = False,
        thought: ThoughtLimit | None = None,
    ) -> AsyncGenerator[EngineEvent, None]:
        """Run one turn on the engine and pass its events on. Close the generator (`contextlib.aclosing`) to cancel.
        See `GenerateRequest` for what the options mean.

        Raises `SessionBusy`, `SessionDisposed`, `SessionError` while an earlier turn is neither committed nor rolled
        back, and what `Engine.generate` raises.
        """
        self._check_usable()
        if self._open and not self._aside:
            raise SessionError("Commit or roll back the turn before the next one.")
        limit = self.defaults.max_output_tokens
        with self._flight():
            owner = self._establish_owner()
            self._open, self._ended, self._aside = True, False, False
            events = self._engine.generate(
                GenerateRequest(
                    owner=owner,
                    domain=self.domain,
                    prompt=prompt,
                    sampling=resolve_sampling(sampling, self.defaults.sampling),
                    max_tokens=limit if max_output_tokens is None else min(limit, max_output_tokens),
                    stop=stop,
                    grammar=grammar,
                    top_logprobs=top_logprobs,
                    special_text=special_text,
                    pins=pins,
                    spare=spare,
                    thought=thought,
                )
            )
            try:
                async for event in events:
                    if isinstance(event, Ended):
                        self._ended = True
                    yield event
            finally:
                if isinstance(events, AsyncGenerator):
                    await events.aclose()

    def end_here(self) -> None:
        """The reply is over although the engine would go on: the caller closed `generate` early and keeps what came.

        Raises `SessionError` if no turn is open, or it still runs.
        """
        self._check_usable()
        if not self._open:
            raise SessionError("There is no turn to end.")
        self._ended = True

    def set_aside(self) -> None:
        """The reply that came is not the one to keep: `generate` may be called once more in the same turn.

        Raises `SessionError` if there is no finished turn.
        """
        self._check_usable()
        if not (self._open and self._ended):
            raise SessionError("There is no finished turn to set aside.")
        self._ended, self._aside = False, True

    def sibling(self) -> ChatSession:
        """A session for another reply to this one's prompt: of the same engine, domain and defaults, without history.
        It is its maker's to dispose."""
        return ChatSession(self._engine, domain=self.domain, defaults=self.defaults)

    def commit(self, history: tuple[Message, ...], n_tokens: int) -> None:
        """The turn succeeded: `history` with its reply is the conversation now, `n_tokens` the length of its cells.

        Raises `SessionError` if neither the engine nor `end_here` ended the turn.
        """
        self._check_usable()
        if not (self._open and self._ended):
            raise SessionError("There is no finished turn to commit.")
        self._open = False
        self.history = history
        self._committed = _Committed(history, self.turns + 1, n_tokens)

    async def rollback(self) -> bool:
        """Undo what was not committed: history at once, cells by truncating the owner to the length before the turn.

        True if the engine confirms. On False the cells are undefined, and the session can only be disposed or reset.
        """
        self._check_usable()
        with self._flight():
            self.history = self._committed.history
            if not self._open:
                return True
            self._ended = self._aside = False
            if self.owner is not None and not await self._truncated(self.owner):
                return False
            self._open = False
            return True

    async def reset(self) -> None:
        """Forget the conversation. The next turn is the first one again, under a new owner.

        Raises what releasing raises; an owner that could not be released is revisited by `dispose`.
        """
        self._check_usable()
        with self._flight():
            self.owner = None
            self.history = ()
            self._committed = _START
            self._open = self._ended = self._aside = False
            await self._release_owners()

    async def dispose(self) -> None:
        """Release every owner; after success any use raises `SessionDisposed`. Idempotent.

        After a failure (raised) call it again: only the owners that failed are revisited.
        """
        if self._disposed:
            return
        with self._flight():
            await self._release_owners()
            self._mark_disposed()

    def forget_generation(self, generation: int) -> None:
        """The worker of `generation` is dead, and all before it: there is nothing left to release there."""
        self._owners = [owner for owner in self._owners if owner.generation > generation]

    def dispose_locally(self) -> bool:
        """Dispose at once if no owner is left to release."""
        if self._owners or self._busy:
            return False
        self._mark_disposed()
        return True

    def _mark_disposed(self) -> None:
        self._disposed = True
        self.history = ()
        self._committed = _START

    def _establish_owner(self) -> OwnerId:
        """The first call fixes the owner; one whose worker is gone holds nothing and is replaced."""
        owner, generation = self.owner, self._engine.generation
        if owner is not None and owner.generation >= generation:
            return owner
        self.forget_generation(generation - 1)
        owner = self.owner = self._engine.new_owner()
        self._owners.append(owner)
        return owner

    async def _truncated(self, owner: OwnerId) -> bool:
        if owner.generation < self._engine.generation:
            return False
        try:
            return await self._engine.truncate(owner, self.tokens) is True
        except EngineError as error:
            logger.warning("the engine did not truncate an interrupted turn: %s", error)
            return False

    async def _release_owners(self) -> None:
        failure: Exception | None = None
        for owner in self.owners:
            try:
                await self._engine.release(owner, purge=self.purge)
            except Exception as error:
                failure = failure or error
            else:
                if owner in self._owners:
                    self._owners.remove(owner)
        if failure is not None and self._owners:
            raise failure

    def _check_usable(self) -> None:
        if self._disposed:
            raise SessionDisposed("The session was disposed.")
        if self.hold is Hold.KEPT:
            raise SessionError("The session went back to its registry.")
        if self._busy:
            raise SessionBusy("Another call of this session is under way.")

    @contextmanager
    def _flight(self) -> Iterator[None]:
        if self._busy:
            raise SessionBusy("Another call of this session is under way.")
        self._busy = True
        try:
            yield
        finally:
            self._busy = False
