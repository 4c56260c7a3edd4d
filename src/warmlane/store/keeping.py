"""Keeping what is continued: a response lives at least as long as one that continues it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import sqlalchemy as sa

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
    written again once in its lifetime. One transaction moves at most `rows`."""

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
        """Extend some of them. False if there were none."""
        async with self._database.writing() as connection:
            found = (await connection.execute(queries.outlived(now, limit=self._rows))).all()
            if found:
                await connection.execute(_EXTEND, [{"row_id": row.id, "until": row.until} for row in found])
        return bool(found)
