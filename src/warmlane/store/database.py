"""One SQL database: transactions that end in bounded time, and drivers' errors in this project's terms."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from warmlane.errors import StoreUnavailable

T = TypeVar("T")

WRITES: Final = "warmlane_writes"
"""Execution option of a connection whose transaction will write; `sqlite` begins it with the write lock."""

CLOSE_TIMEOUT_S: Final = 10.0


@dataclass(slots=True)
class _Call:
    """`given_up`: whoever asked was told that it failed."""

    given_up: bool = False


_call: ContextVar[_Call] = ContextVar("warmlane_store_call")


class Database:
    """A database that is already at this version's schema.

    Every operation runs in a task of the database's own, so that a caller's cancellation never reaches a driver in the
    middle of a statement. With `one_writer`, writers queue here in order rather than by the database's polling.
    """

    def __init__(self, engine: AsyncEngine, *, timeout_s: float, one_writer: bool) -> None:
        self._engine = engine
        self._writing_engine = engine.execution_options(**{WRITES: True})
        self._timeout_s = timeout_s
        self._writer = asyncio.Lock() if one_writer else None
        self._tasks: set[asyncio.Task[object]] = set()
        self._closed = False

    async def run(self, work: Coroutine[object, object, T]) -> T:
        """The result of `work`, which uses `reading` or `writing`. Raises `StoreUnavailable` if it fails in the
        database, and when its time is up; what it has not committed by then it does not commit any more."""
        if self._closed:
            work.close()
            raise StoreUnavailable("The response store is closed.")
        call = _Call()
        task = asyncio.create_task(self._translated(work, call))
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        try:
            async with asyncio.timeout(self._timeout_s):
                return await asyncio.shield(task)
        except TimeoutError:
            call.given_up = True
            raise StoreUnavailable(f"The response store did not answer within {self._timeout_s:g} s.") from None

    @contextlib.asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        """A transaction that only reads."""
        async with self._engine.connect() as connection:
            yield connection

    @contextlib.asynccontextmanager
    async def writing(self) -> AsyncIterator[AsyncConnection]:
        """A transaction that writes, committed at the end of the block. A writer whose time is up before its turn came
        gives up without having touched the database."""
        if self._writer is None:
            async with self._writing_engine.begin() as connection:
                yield connection
                _check_wanted()
            return
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._writer.acquire()
        except TimeoutError:
            raise StoreUnavailable("The response store is busy; its writers do not keep up.") from None
        try:
            async with self._writing_engine.begin() as connection:
                yield connection
                _check_wanted()
        finally:
            self._writer.release()

    async def close(self) -> None:
        """Wait for work that was begun, at most `CLOSE_TIMEOUT_S`, then close. Idempotent."""
        if self._closed:
            return
        self._closed = True
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_TIMEOUT_S)
        with contextlib.suppress(sa.exc.SQLAlchemyError, OSError, TimeoutError):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._engine.dispose()

    async def _translated(self, work: Coroutine[object, object, T], call: _Call) -> T:
        _call.set(call)
        try:
            return await work
        except sa.exc.SQLAlchemyError as error:
            raise StoreUnavailable(f"The response store {complaint(error)}.") from error
        except msgspec.MsgspecError as error:
            raise StoreUnavailable("The response store holds a row that cannot be read.") from error
        except OSError as error:
            raise StoreUnavailable("The response store cannot be reached or used.") from error

    def _forget(self, task: asyncio.Task[object]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            # Reading it keeps asyncio from reporting an error nobody waits for any more.
            task.exception()


def _check_wanted() -> None:
    """Raises before a commit that whoever asked for was told has failed."""
    if _call.get().given_up:
        raise StoreUnavailable("The response store was too slow.")


_FULL_SQLSTATES: Final = ("53100", "53200")
"""PostgreSQL's disk_full and out_of_memory."""

_BUSY_SQLSTATES: Final = ("40001", "40P01", "55P03")
"""PostgreSQL's serialization_failure, deadlock_detected and lock_not_available."""


def complaint(error: sa.exc.SQLAlchemyError) -> str:
    """What ails the store, in words fit for a client: a driver's text may hold statements and paths."""
    original = error.orig if isinstance(error, sa.exc.DBAPIError) else None
    text = str(original or "")
    sqlstate = getattr(original, "sqlstate", None)
    if sqlstate in _FULL_SQLSTATES or "is full" in text:
        return "is full"
    if sqlstate in _BUSY_SQLSTATES or "locked" in text or "busy" in text:
        return "is busy: another process holds its lock"
    if isinstance(error, sa.exc.TimeoutError):
        return "is busy: all its connections are in use"
    return "cannot be reached or used"
