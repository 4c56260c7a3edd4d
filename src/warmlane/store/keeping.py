"""Keeping what is continued: a response lives at least as long as one that continues it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from warmlane.store import queries
from warmlane.store.base import HELD_S
from warmlane.store.database import Database
from warmlane.store.dropping import BATCH_ROWS
from warmlane.store.schema import responses

_EXTEND: Final = (
    sa.update(responses)
    .where(responses.c.id == sa.bindparam("row_id"), responses.c.expires_at < sa.bindparam("until"))
    .values(expires_at=sa.bindparam("until"))
)


class Keeper:
    """Moves the expiry of what is continued, once it is due and not at every turn: so a row of a long conversation is
    written again once in its lifetime. One transaction moves about `rows`."""

    def __init__(self, database: Database, *, rows: int = BATCH_ROWS) -> None:
        self._database = database
        self._rows = rows

    async def keep(self, *, now: float, in_use: Collection[tuple[str, str]]) -> None:
        """Extend what has expired and is continued by a live row, or is `in_use`: ids and tenants of rows that turns
        are about to continue. Raises `StoreUnavailable`."""
        if in_use:
            await self._database.run(self._hold(now, in_use))
        while await self._database.run(self._extend(now)):
            pass

    async def _hold(self, now: float, in_use: Collection[tuple[str, str]]) -> None:
        async with self._database.writing() as connection:
            for response_id, tenant in in_use:
                held = sa.update(responses).where(queries.is_row(response_id, tenant), responses.c.expires_at < now)
                await connection.execute(held.values(expires_at=now + HELD_S))

    async def _extend(self, now: float) -> bool:
        """Some of them, from the end of each conversation to its beginning. False if there were none."""
        n_moved = 0
        async with self._database.writing() as connection:
            found = await self._outlived(connection, queries.outlived(now).limit(self._rows))
            while found and n_moved < self._rows:
                await connection.execute(_EXTEND, [{"row_id": row.id, "until": row.until} for row in found])
                n_moved += len(found)
                before = {row.previous_response_id for row in found if row.previous_response_id is not None}
                found = await self._outlived(connection, queries.outlived(now, ids=before)) if before else ()
        return n_moved > 0

    async def _outlived(
        self, connection: AsyncConnection, query: sa.Select[tuple[str, str | None, float]]
    ) -> Sequence[sa.Row[tuple[str, str | None, float]]]:
        return (await connection.execute(query)).all()
