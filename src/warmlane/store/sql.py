"""The response store over SQLAlchemy Core."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from typing import Final, TypeVar

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from warmlane.errors import Unavailable
from warmlane.store import queries
from warmlane.store.base import Chain, StoredTurn
from warmlane.store.rows import to_chain_turn, to_columns, to_turn
from warmlane.store.schema import responses

T = TypeVar("T")

WRITES: Final = "warmlane_writes"
"""Execution option of a connection whose transaction will write; `sqlite` begins it with the write lock."""

CLOSE_TIMEOUT_S: Final = 10.0


class SqlResponseStore:
    """A `ResponseStore` in one SQL database that is already at this version's schema.

    Every operation runs in a task of the store's own, so that a caller's cancellation never reaches a driver in the
    middle of a statement. With `one_writer`, writers queue here in order rather than by the database's polling.
    """

    def __init__(self, engine: AsyncEngine, *, timeout_s: float, one_writer: bool) -> None:
        self._engine = engine
        self._writing_engine = engine.execution_options(**{WRITES: True})
        self._timeout_s = timeout_s
        self._writer = asyncio.Lock() if one_writer else None
        self._tasks: set[asyncio.Task[object]] = set()
        self._closed = False

    async def save(self, turn: StoredTurn) -> None:
        await self._bounded(self._save(turn))

    async def get(self, response_id: str, tenant: str, *, now: float) -> StoredTurn | None:
        return await self._bounded(self._get(response_id, tenant, now))

    async def history(self, response_id: str, tenant: str, *, now: float) -> Chain | None:
        return await self._bounded(self._history(response_id, tenant, now))

    async def delete(self, response_id: str, tenant: str) -> bool:
        return await self._bounded(self._delete(response_id, tenant))

    async def prune(self, *, now: float, max_bytes: int | None = None) -> tuple[str, ...]:
        return await self._bounded(self._prune(now, max_bytes))

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_TIMEOUT_S)
        with contextlib.suppress(sa.exc.SQLAlchemyError):
            await self._engine.dispose()

    async def _save(self, turn: StoredTurn) -> None:
        columns = to_columns(turn)
        replace = sa.update(responses).where(responses.c.id == turn.id, responses.c.tenant == turn.tenant)
        async with self._transaction() as connection:
            replaced = await connection.execute(replace.values(columns))
            if not replaced.rowcount:
                await connection.execute(sa.insert(responses).values(columns))

    async def _get(self, response_id: str, tenant: str, now: float) -> StoredTurn | None:
        async with self._engine.connect() as connection:
            result = await connection.execute(queries.live_row(response_id, tenant, now))
            row = result.mappings().one_or_none()
        return None if row is None else to_turn(row)

    async def _history(self, response_id: str, tenant: str, now: float) -> Chain | None:
        async with self._engine.connect() as connection:
            result = await connection.execute(queries.chain_rows(response_id, tenant, now))
            rows = result.mappings().all()
        if not rows or rows[0][responses.c.previous_response_id] is not None:
            return None
        return Chain(tuple(to_chain_turn(row) for row in rows))

    async def _delete(self, response_id: str, tenant: str) -> bool:
        async with self._transaction() as connection:
            result = await connection.execute(queries.delete_row(response_id, tenant))
            return result.rowcount > 0

    async def _prune(self, now: float, max_bytes: int | None) -> tuple[str, ...]:
        async with self._transaction() as connection:
            gone = [str(i) for i in (await connection.execute(queries.delete_expired(now))).scalars()]
            if max_bytes is not None:
                gone += [str(i) for i in (await connection.execute(queries.delete_beyond(max_bytes))).scalars()]
        return tuple(gone)

    @contextlib.asynccontextmanager
    async def _transaction(self) -> AsyncIterator[AsyncConnection]:
        """A transaction that writes, committed at the end of the block. A writer whose time is up before its turn came
        gives up without having touched the database."""
        if self._writer is None:
            async with self._writing_engine.begin() as connection:
                yield connection
            return
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._writer.acquire()
        except TimeoutError:
            raise Unavailable("The response store is busy; its writers do not keep up.") from None
        try:
            async with self._writing_engine.begin() as connection:
                yield connection
        finally:
            self._writer.release()

    async def _bounded(self, work: Coroutine[object, object, T]) -> T:
        if self._closed:
            work.close()
            raise Unavailable("The response store is closed.")
        task = asyncio.create_task(self._translated(work))
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        try:
            async with asyncio.timeout(self._timeout_s):
                return await asyncio.shield(task)
        except TimeoutError:
            raise Unavailable(f"The response store did not answer within {self._timeout_s:g} s.") from None

    async def _translated(self, work: Coroutine[object, object, T]) -> T:
        try:
            return await work
        except sa.exc.SQLAlchemyError as error:
            raise Unavailable(f"The response store {_complaint(error)}.") from error
        except (msgspec.MsgspecError, OSError) as error:
            raise Unavailable("The response store cannot read or write its data.") from error

    def _forget(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            # Reading it keeps asyncio from reporting an error nobody waits for any more.
            task.exception()


def _complaint(error: sa.exc.SQLAlchemyError) -> str:
    """What ails the store, in words fit for a client: a driver's text may hold statements and paths."""
    text = str(error.orig) if isinstance(error, sa.exc.DBAPIError) else ""
    if "locked" in text or "busy" in text or isinstance(error, sa.exc.TimeoutError):
        return "is busy: another process holds its lock"
    if "full" in text:
        return "is full"
    return "cannot be reached or used"
