"""Deleting many rows, some at a time: each transaction ends well within the timeout, and writers get their turn."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from warmlane.store.base import Erased
from warmlane.store.database import Database
from warmlane.store.schema import conversation_entries, conversations, response_events, responses

BATCH_ROWS: Final = 500
"""Rows that one transaction deletes at most."""

BATCH_BYTES: Final = 8 * 2**20
"""Payload that one transaction deletes at most, unless a single row has more: SQLite overwrites all of it."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """Rows of `table`, and those `below` that go with them: `number` tells the latter of one `parent` apart."""

    table: sa.Table
    size: sa.ColumnElement[int]
    domain: sa.ColumnElement[bytes] | sa.ColumnElement[None]
    below: sa.Table
    parent: sa.ColumnElement[str]
    number: sa.ColumnElement[int]
    payload: sa.ColumnElement[bytes]


_RESPONSES: Final = _Kind(
    table=responses,
    size=responses.c.size_bytes + responses.c.events_bytes,
    domain=responses.c.domain,
    below=response_events,
    parent=response_events.c.response_id,
    number=response_events.c.sequence,
    payload=response_events.c.data,
)
_CONVERSATIONS: Final = _Kind(
    table=conversations,
    size=conversations.c.size_bytes,
    domain=sa.null(),
    below=conversation_entries,
    parent=conversation_entries.c.conversation_id,
    number=conversation_entries.c.position,
    payload=conversation_entries.c.message,
)


class _Row(msgspec.Struct, frozen=True):
    id: str
    size_bytes: int
    domain: bytes | None


class Dropper:
    """Deletes what fulfils a condition, at most `rows` and about `n_bytes` in one transaction. Raises
    `StoreUnavailable`; some of it may be gone then."""

    def __init__(self, database: Database, *, rows: int = BATCH_ROWS, n_bytes: int = BATCH_BYTES) -> None:
        self._database = database
        self._rows = rows
        self._n_bytes = n_bytes

    async def responses(self, condition: sa.ColumnElement[bool]) -> Erased:
        gone = await self._drop(_RESPONSES, condition)
        return Erased(tuple(row.id for row in gone), (), frozenset(row.domain for row in gone if row.domain))

    async def one_response(self, condition: sa.ColumnElement[bool]) -> bool:
        """Delete the one row there may be. Whether there was one is known with the transaction that deletes it: nothing
        behind it can fail, and leave the caller to think that it is still there."""
        while (some := await self._database.run(self._drop_some(_RESPONSES, condition))) == []:
            pass
        return some is not None

    async def conversations(self, condition: sa.ColumnElement[bool]) -> tuple[str, ...]:
        """The ids of those that were deleted."""
        return tuple(row.id for row in await self._drop(_CONVERSATIONS, condition))

    async def _drop(self, kind: _Kind, condition: sa.ColumnElement[bool]) -> list[_Row]:
        gone: list[_Row] = []
        while (some := await self._database.run(self._drop_some(kind, condition))) is not None:
            gone += some
        return gone

    async def _drop_some(self, kind: _Kind, condition: sa.ColumnElement[bool]) -> list[_Row] | None:
        """The rows that one transaction deleted; None if there were none left."""
        row_id = kind.table.c.id
        async with self._database.writing() as connection:
            some = sa.select(row_id).where(condition).limit(self._rows)
            chosen = (await connection.execute(some)).scalars().all()
            if not chosen:
                return None
            # In one order, see `queries.in_lock_order`; what is there still, and is to go still, once that is done.
            locked = sa.select(row_id, kind.size, kind.domain).where(row_id.in_(chosen), condition)
            found = await connection.execute(locked.order_by(row_id).with_for_update())
            rows = [_Row(*row) for row in found]
            if not rows:
                return []
            if rows[0].size_bytes > self._n_bytes and await self._thin(connection, kind, rows[0].id):
                return []
            taken = rows[: self._fitting(row.size_bytes for row in rows)]
            ids = [row.id for row in taken]
            await connection.execute(sa.delete(kind.table).where(kind.table.c.id.in_(ids)))
        return taken

    async def _thin(self, connection: AsyncConnection, kind: _Kind, row_id: str) -> bool:
        """Delete some of what is below a row too large to go at once. False if nothing is any more."""
        below = sa.select(kind.number, sa.func.length(kind.payload)).where(kind.parent == row_id).limit(self._rows)
        found = (await connection.execute(below)).all()
        numbers = [number for number, _ in found][: self._fitting(size for _, size in found)]
        if numbers:
            some = sa.and_(kind.parent == row_id, kind.number.in_(numbers))
            await connection.execute(sa.delete(kind.below).where(some))
        return bool(numbers)

    def _fitting(self, sizes: Iterable[int]) -> int:
        """How many of the first of these sizes go in one transaction; one at least."""
        return max(1, sum(total <= self._n_bytes for total in accumulate(sizes)))
