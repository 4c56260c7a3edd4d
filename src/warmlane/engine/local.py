"""An engine inside this process, for tests and for use as a library: no isolation from native crashes."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

from warmlane.engine.assembly import Assembled, OpenBackend, assemble, open_backend
from warmlane.engine.config import EngineConfig
from warmlane.engine.forgetting import NOT_REMOVED
from warmlane.engine.messages import TurnOutput
from warmlane.engine.protocol import EngineEvent, EngineInfo, GenerateRequest, OwnerId, TextPiece
from warmlane.engine.scheduler import Scheduler
from warmlane.engine.stats import EngineStats
from warmlane.engine.thread import DecodeThread
from warmlane.engine.turns import TurnTable
from warmlane.errors import EngineDied, EngineFault

log = logging.getLogger(__name__)
T = TypeVar("T")

GENERATION = 1


class LocalEngine:
    """Implements `protocol.Engine` with a decode thread. Make it with `start`; it is used on that event loop alone.

    There is nothing to restart it: once its thread has died, `ready` stays false and turns end in `EngineDied`.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._turns = TurnTable()
        self._serials = itertools.count(1)
        self._alive = False
        self._assembled: Assembled | None = None
        self._thread: DecodeThread | None = None

    @classmethod
    async def start(cls, config: EngineConfig, *, open_backend: OpenBackend | None = None) -> LocalEngine:
        """Load the model on a thread of its own. `open_backend` replaces the choice by `config.kind`.

        Raises `errors.ConfigError` for a model that cannot be used.
        """
        engine = cls(asyncio.get_running_loop())
        await engine._load(config, open_backend or _open_surviving_crashes)
        return engine

    @property
    def info(self) -> EngineInfo:
        return self._model.info

    @property
    def generation(self) -> int:
        return GENERATION

    @property
    def capacity(self) -> int:
        return self.info.capacity

    @property
    def block_paged(self) -> bool:
        return self.info.block_paged

    @property
    def ready(self) -> bool:
        return self._alive

    def new_owner(self) -> OwnerId:
        return OwnerId(GENERATION, next(self._serials))

    async def tokenize(self, pieces: Sequence[TextPiece]) -> list[list[int]]:
        tokenizer = self._model.backend.tokenizer
        return [tokenizer.tokenize(p.text, special=p.special, bos=p.bos, joined=p.joined) for p in pieces]

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[EngineEvent, None]:
        """See `protocol.Engine.generate`. Leave it early through `contextlib.aclosing`, so that the turn is cancelled
        at once and not when the iterator is collected."""
        self._check_alive()
        events = self._turns.run(
            lambda turn: self._submit(turn, request),
            self._cancel,
        )
        try:
            async for event in events:
                yield event
        finally:
            await events.aclose()

    async def release(self, owner: OwnerId, *, purge: bool = False) -> None:
        if self._alive:
            await self._ask(lambda s: s.release(owner, purge=purge))

    async def truncate(self, owner: OwnerId, length: int) -> bool:
        return await self._ask(lambda s: s.truncate(owner, length))

    async def forget(self, domain: bytes, prompt: bytes = b"", *, at: int = 0, keep: int = 0) -> None:
        if self._alive:
            forgot = await self._ask(lambda s: s.cache.forget(domain, prompt, at=at, keep=keep))
            if not forgot:
                raise EngineFault(NOT_REMOVED)

    async def reset(self) -> None:
        await self._ask(lambda s: s.reset())

    async def stats(self) -> EngineStats:
        """What the engine says about itself, taken between two steps."""
        return await self._ask(lambda s: s.stats())

    async def close(self) -> None:
        """Stop the thread and free the model; turns still running end in `EngineDied`. Idempotent."""
        self._alive = False
        self._turns.all_died()
        if self._thread is not None:
            self._thread.stop()
            await asyncio.to_thread(self._thread.join)

    @property
    def _model(self) -> Assembled:
        self._check_alive()
        assert self._assembled is not None
        return self._assembled

    async def _load(self, config: EngineConfig, opener: OpenBackend) -> None:
        self._thread = DecodeThread(
            partial(assemble, config, GENERATION, open_backend=opener),
            on_outputs=self._on_outputs,
            on_death=self._on_death,
        )
        self._assembled = await asyncio.wrap_future(self._thread.start())
        self._alive = True

    def _check_alive(self) -> None:
        if not self._alive:
            raise EngineDied("The engine is not running.")

    def _submit(self, turn: int, request: GenerateRequest) -> None:
        if self._thread is not None and self._alive:
            self._thread.submit(turn, request)

    def _cancel(self, turn: int) -> None:
        if self._thread is not None and self._alive:
            self._thread.cancel(turn)

    def _post(self, command: Callable[[Scheduler], None]) -> None:
        if self._thread is not None and self._alive:
            self._thread.post(command)

    async def _ask(self, question: Callable[[Scheduler], T]) -> T:
        self._check_alive()
        answer: Future[T] = Future()

        def reply(scheduler: Scheduler) -> None:
            if answer.set_running_or_notify_cancel():  # the asker may be gone by now
                answer.set_result(question(scheduler))

        self._post(reply)
        return await asyncio.wrap_future(answer)

    def _on_outputs(self, outputs: list[TurnOutput]) -> None:
        self._loop.call_soon_threadsafe(self._turns.deliver, outputs)

    def _on_death(self, error: BaseException) -> None:
        log.error("the decode thread died: %r", error, exc_info=error)
        self._loop.call_soon_threadsafe(self._died)

    def _died(self) -> None:
        self._alive = False
        self._turns.all_died()


class _ScriptedCrash(Exception):
    """The simulated engine was told to crash; in this process that ends the decode thread only."""


def _raise_crash() -> None:
    raise _ScriptedCrash("The script asked for a crash.")


_open_surviving_crashes: OpenBackend = partial(open_backend, crash=_raise_crash)
