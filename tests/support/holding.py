"""Engines and stores whose calls wait until a test lets them go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

from warmlane.engine.config import EngineConfig
from warmlane.engine.local import LocalEngine
from warmlane.engine.protocol import EngineEvent, EngineInfo, GenerateRequest, OwnerId, TextPiece
from warmlane.engine.stats import EngineStats
from warmlane.store import Chain, Continued, ConversationStore, Erased, InUse, ResponseStore, RunLog, StoredTurn


class Barrier:
    """While shut, calls that pass it wait. `arrived` is set once one does."""

    def __init__(self, *, shut: bool = False) -> None:
        self.arrived = asyncio.Event()
        self._open = asyncio.Event()
        if not shut:
            self._open.set()

    def shut(self) -> None:
        self.arrived.clear()
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    async def passed(self) -> None:
        if not self._open.is_set():
            self.arrived.set()
            await self._open.wait()


class HoldingStore:
    """A store whose saves wait at `saving`. Saves and erasures fail with `failure`."""

    def __init__(self, store: ResponseStore) -> None:
        self._store = store
        self.saving = Barrier()
        self.failure: Exception | None = None

    @property
    def runs(self) -> RunLog:
        return self._store.runs

    @property
    def conversations(self) -> ConversationStore:
        return self._store.conversations

    async def save(self, turn: StoredTurn, *, continued: Continued | None = None) -> None:
        await self.saving.passed()
        if self.failure is not None:
            raise self.failure
        await self._store.save(turn, continued=continued)

    async def get(self, response_id: str, tenant: str, *, now: float) -> StoredTurn | None:
        return await self._store.get(response_id, tenant, now=now)

    async def history(self, response_id: str, tenant: str, *, now: float) -> Chain | None:
        return await self._store.history(response_id, tenant, now=now)

    async def delete(self, response_id: str, tenant: str) -> bool:
        return await self._store.delete(response_id, tenant)

    async def prune(
        self, *, now: float, max_bytes: int | None = None, in_use: Callable[[], InUse] = InUse
    ) -> tuple[str, ...]:
        return await self._store.prune(now=now, max_bytes=max_bytes, in_use=in_use)

    async def domains(self, tenant: str) -> frozenset[bytes]:
        return await self._store.domains(tenant)

    async def erase(self, tenant: str) -> Erased:
        if self.failure is not None:
            raise self.failure
        return await self._store.erase(tenant)

    async def close(self) -> None:
        await self._store.close()


class HoldingEngine:
    """A simulated engine whose releases wait at `releasing`, and which forgets nothing while it has `failure`. As with
    a worker, a question once asked is answered even if nobody waits for the answer any more."""

    def __init__(self, engine: LocalEngine) -> None:
        self._engine = engine
        self.releasing = Barrier()
        self.failure: Exception | None = None

    @classmethod
    async def start(cls, config: EngineConfig) -> HoldingEngine:
        return cls(await LocalEngine.start(config))

    @property
    def info(self) -> EngineInfo:
        return self._engine.info

    @property
    def ready(self) -> bool:
        return self._engine.ready

    @property
    def generation(self) -> int:
        return self._engine.generation

    @property
    def capacity(self) -> object:
        return self._engine.capacity

    @property
    def block_paged(self) -> object:
        return self._engine.block_paged

    def new_owner(self) -> OwnerId:
        return self._engine.new_owner()

    async def tokenize(self, pieces: Sequence[TextPiece]) -> list[list[int]]:
        return await self._engine.tokenize(pieces)

    def generate(self, request: GenerateRequest) -> AsyncIterator[EngineEvent]:
        return self._engine.generate(request)

    async def release(self, owner: OwnerId, *, purge: bool = False) -> None:
        await self.releasing.passed()
        await asyncio.shield(self._engine.release(owner, purge=purge))

    async def truncate(self, owner: OwnerId, length: int) -> bool:
        return await asyncio.shield(self._engine.truncate(owner, length))

    async def forget(self, domain: bytes, prompt: bytes = b"", *, at: int = 0, keep: int = 0) -> None:
        if self.failure is not None:
            raise self.failure
        await asyncio.shield(self._engine.forget(domain, prompt, at=at, keep=keep))

    async def reset(self) -> None:
        await asyncio.shield(self._engine.reset())

    async def stats(self) -> EngineStats:
        return await self._engine.stats()

    async def close(self) -> None:
        self.releasing.open()
        await self._engine.close()
