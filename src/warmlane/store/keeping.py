"""Keeping what is continued: a response lives at least as long as one that continues it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import sqlalchemy as sa

from warmlane.store import queries
from warmlane.store.base import HELD_S, InUse
from warmlane.store.database import Database
from warmlane.store.dropping import BATCH_ROWS
from warmlane.store.schema import conversations, responses

_EXTEND: Final = (
    sa.update(responses)
    .where(responses.c.id == sa.bindparam("row_id"), responses.c.expires_at < sa.bindparam("until"))
    .values(expires_at=sa.bindparam("until"))
)


class Keeper:
    """Moves the expiry of what is continued, once it is due and not at every turn: so a row of a long conversation is
    written again once in its lifetime. One transaction moves at most `rows`."""

    def __init__(self, database: Database, *, rows: int = BATCH_ROWS) -> None:
        self._database = database
        self._rows = rows

    async def keep(self, *, now: float, in_use: InUse) -> None:
        """Extend what has expired and is continued by a live row, or is `in_use`; conversations that are were last used
        now, so that other servers do not take them for the oldest. Raises `StoreUnavailable`."""
        if in_use.responses:
            due = responses.c.expires_at < now
            await self._database.run(self._touch(responses, in_use.responses, due, {"expires_at": now + HELD_S}))
        if in_use.conversations:
            before = conversations.c.used_at < now
            await self._database.run(self._touch(conversations, in_use.conversations, before, {"used_at": now}))
        while await self._database.run(self._extend(now)):
            pass

    async def _touch(
        self,
        table: sa.Table,
        rows: Collection[tuple[str, str]],
        due: sa.ColumnElement[bool],
        values: dict[str, float],
    ) -> None:
        touched = sa.and_(queries.is_one_of(table, rows), due)
        async with self._database.writing() as connection:
            await connection.execute(queries.in_lock_order(table, touched))
            await connection.execute(sa.update(table).where(touched).values(values))

    async def _extend(self, now: float) -> bool:
        """Extend some of them. False if there were none."""
        async with self._database.writing() as connection:
            found = (await connection.execute(queries.outlived(now, limit=self._rows))).all()
            if found:
                await connection.execute(_EXTEND, [{"row_id": row.id, "until": row.until} for row in found])
        return bool(found)
