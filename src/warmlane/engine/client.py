"""The engine as the server uses it: a supervised worker process behind `protocol.Engine`."""

from __future__ import annotations

import asyncio
import itertools
import logging
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass

from warmlane.engine.config import EngineConfig
from warmlane.engine.forgetting import NOT_REMOVED, Forgotten, OwedForgets, forget_files
from warmlane.engine.messages import (
    AskStats,
    Cancel,
    Command,
    Done,
    Forget,
    Release,
    Report,
    Reset,
    StatsReport,
    Submit,
    Tokenize,
    Tokenized,
    Truncate,
    TurnOutputs,
)
from warmlane.engine.process import WorkerProcess, describe_exit
from warmlane.engine.protocol import EngineEvent, EngineInfo, GenerateRequest, OwnerId, TextPiece
from warmlane.engine.stats import EngineStats
from warmlane.engine.turns import TurnTable
from warmlane.errors import ConfigError, EngineDied, EngineFault

log = logging.getLogger(__name__)

_KILLS = frozenset(-number for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP))

DeathListener = Callable[[int], None]
_Answer = Tokenized | Done | StatsReport


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delays before a dead worker is replaced, in seconds: `first_s`, then twice as long each time up to `longest_s`;
    from the start again once a worker has lived for `healthy_s`."""

    first_s: float = 0.1
    longest_s: float = 10.0
    healthy_s: float = 30.0

    def delay_s(self, attempt: int) -> float:
        """Before restart number `attempt`, counted from 0."""
        return min(self.longest_s, self.first_s * 2.0 ** min(attempt, 30))


class WorkerEngine:
    """Implements `protocol.Engine`. Make it with `start`, end it with `close`; used on that event loop alone.

    When the worker dies, its turns and questions end in `EngineDied`, `generation` grows, death listeners are called
    with the generation that died, and a new worker is started with back-off; `ready` is false until it has loaded.
    """

    def __init__(
        self,
        config: EngineConfig,
        *,
        load_timeout_s: float,
        backoff: Backoff,
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._config = config
        self._load_timeout_s = load_timeout_s
        self._backoff = backoff
        self._sleep = sleep
        self._turns = TurnTable()
        self._answers: dict[int, asyncio.Future[_Answer]] = {}
        self._calls = itertools.count()
        self._serials = itertools.count(1)
        self._listeners: list[DeathListener] = []
        self._generation = 1
        self._last_status = 0
        self._owed = OwedForgets()
        self._worker: WorkerProcess | None = None
        self._info: EngineInfo | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._became_ready = asyncio.Event()

    @classmethod
    async def start(
        cls,
        config: EngineConfig,
        *,
        on_death: DeathListener | None = None,
        load_timeout_s: float = 300.0,
        backoff: Backoff = Backoff(),
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> WorkerEngine:
        """Spawn the worker and wait until its model is loaded. Raises `ConfigError` with the worker's reason."""
        engine = cls(config, load_timeout_s=load_timeout_s, backoff=backoff, sleep=sleep)
        if on_death is not None:
            engine.add_death_listener(on_death)
        await engine._spawn()
        engine._supervisor = asyncio.create_task(engine._supervise(), name="engine-supervisor")
        return engine

    @property
    def info(self) -> EngineInfo:
        if self._info is None:
            raise EngineDied("The engine has not loaded its model.")
        return self._info

    @property
    def generation(self) -> int:
        return self._generation

    @property
    def capacity(self) -> int:
        return self.info.capacity

    @property
    def block_paged(self) -> bool:
        return self.info.block_paged

    @property
    def ready(self) -> bool:
        return self._worker is not None

    @property
    def worker_pid(self) -> int | None:
        """Process id of the running worker; None while there is none."""
        return self._worker.pid if self._worker is not None else None

    @property
    def was_killed(self) -> bool:
        """Whether the last worker that died was sent a signal that nothing in it sends, such as by the kernel when
        memory is short."""
        return self._last_status in _KILLS

    def add_death_listener(self, listener: DeathListener) -> None:
        """Call `listener` with the dead generation whenever a worker dies unasked."""
        self._listeners.append(listener)

    async def wait_ready(self) -> None:
        """Wait until a worker is ready."""
        await self._became_ready.wait()

    def new_owner(self) -> OwnerId:
        return OwnerId(self._generation, next(self._serials))

    async def tokenize(self, pieces: Sequence[TextPiece]) -> list[list[int]]:
        answer = await self._ask(lambda call: Tokenize(call, tuple(pieces)))
        assert isinstance(answer, Tokenized)
        return answer.ids

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[EngineEvent, None]:
        """See `protocol.Engine.generate`. Leave it early through `contextlib.aclosing`, so that the turn is cancelled
        at once and not when the iterator is collected."""
        self._check_generation(request.owner)
        events = self._turns.run(
            lambda turn: self._live.send(Submit(turn, request)),
            lambda turn: self._tell(Cancel(turn)),
        )
        try:
            async for event in events:
                yield event
        finally:
            await events.aclose()

    async def release(self, owner: OwnerId, *, purge: bool = False) -> None:
        # The cells of a dead worker's owner went with it.
        if owner.generation == self._generation and self.ready:
            await self._ask(lambda call: Release(call, owner, purge))

    async def truncate(self, owner: OwnerId, length: int) -> bool:
        self._check_generation(owner)
        answer = await self._ask(lambda call: Truncate(call, owner, length))
        assert isinstance(answer, Done)
        return answer.ok

    async def forget(self, domain: bytes, prompt: bytes = b"", *, at: int = 0, keep: int = 0) -> None:
        what = Forgotten(domain, prompt, at, keep)
        while self.ready:
            try:
                answer = await self._ask(lambda call: _command(call, what))
            except EngineDied:
                continue  # with what it had in memory; what it had on disk is another's, or nobody's
            if isinstance(answer, Done) and not answer.ok:
                raise EngineFault(NOT_REMOVED)
            return
        self._owed.add(what)
        await forget_files(self._config.disk_cache_dir, what)

    async def reset(self) -> None:
        await self._ask(Reset)

    async def stats(self) -> EngineStats:
        """What the engine says about itself, taken between two steps. Raises `EngineDied`."""
        answer = await self._ask(AskStats)
        assert isinstance(answer, StatsReport)
        return answer.stats

    async def close(self) -> None:
        """Stop the worker after the step it is in; turns still running end in `EngineDied`. Idempotent."""
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is not None:
            supervisor.cancel()
            await asyncio.gather(supervisor, return_exceptions=True)
        worker = self._worker
        self._forget_worker()
        if worker is not None:
            await worker.close()

    @property
    def _live(self) -> WorkerProcess:
        if self._worker is None:
            raise EngineDied("The engine's worker process is not running.")
        return self._worker

    def _check_generation(self, owner: OwnerId) -> None:
        if owner.generation != self._generation:
            raise EngineDied("The worker process that held this conversation has ended.")

    def _tell(self, command: Command) -> None:
        if self._worker is not None:
            self._worker.send(command)

    async def _ask(self, question: Callable[[int], Command]) -> _Answer:
        worker = self._live
        call = next(self._calls)
        answer: asyncio.Future[_Answer] = asyncio.get_running_loop().create_future()
        self._answers[call] = answer
        try:
            worker.send(question(call))
            return await answer
        finally:
            self._answers.pop(call, None)

    def _on_report(self, report: Report) -> None:
        if isinstance(report, TurnOutputs):
            self._turns.deliver(report.outputs)
        elif isinstance(report, Tokenized | Done | StatsReport):
            answer = self._answers.get(report.call)
            if answer is not None and not answer.done():
                answer.set_result(report)

    async def _spawn(self) -> None:
        worker, info = await WorkerProcess.spawn(self._config, self._generation, load_timeout_s=self._load_timeout_s)
        self._worker, self._info = worker, info
        for what in self._owed.take():
            worker.send(_command(next(self._calls), what))
        self._became_ready.set()

    async def _supervise(self) -> None:
        """Read the worker's reports; when it dies, bury it and start the next, for as long as the engine is open."""
        loop = asyncio.get_running_loop()
        attempt = 0
        while True:
            born = loop.time()
            status = await self._live.receive(self._on_report)
            if loop.time() - born >= self._backoff.healthy_s:
                attempt = 0
            await self._bury(status)
            attempt = await self._revive(attempt)

    async def _bury(self, status: int) -> None:
        dead, worker = self._generation, self._live
        log.error("worker %d of generation %d ended: %s", worker.pid, dead, describe_exit(status))
        self._forget_worker()
        self._generation += 1
        self._last_status = status
        for listener in self._listeners:
            try:
                listener(dead)
            except Exception:
                log.exception("a listener for the worker's death failed")
        await worker.close()

    async def _revive(self, attempt: int) -> int:
        """Start a worker, as often as it takes; returns the number of the next attempt."""
        while True:
            await self._sleep(self._backoff.delay_s(attempt))
            attempt += 1
            try:
                await self._spawn()
            except (ConfigError, OSError) as error:
                log.error("the worker does not come back: %s", error)
                continue
            except Exception:
                log.exception("the worker does not come back")
                continue
            return attempt

    def _forget_worker(self) -> None:
        self._worker = None
        self._became_ready.clear()
        self._turns.all_died()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(EngineDied("The engine's worker process ended."))


def _command(call: int, what: Forgotten) -> Forget:
    return Forget(call, what.domain, what.prompt, what.at, what.keep)
