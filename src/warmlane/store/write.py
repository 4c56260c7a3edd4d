"""Writing one row of a response."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from warmlane.store import queries
from warmlane.store.base import StoredTurn
from warmlane.store.rows import to_columns
from warmlane.store.schema import responses


async def write_row(
    connection: AsyncConnection, turn: StoredTurn, *, server: str | None, seen_at: float | None
) -> bool:
    """Replace the turn's row, or write a new one. Whether there was one."""
    values = {**to_columns(turn), "server": server, "seen_at": seen_at, "cancelled": False}
    replace = sa.update(responses).where(queries.is_row(turn.id, turn.tenant)).values(values)
    if (await connection.execute(replace)).rowcount:
        return True
    chain = queries.chain_of(turn.id, turn.previous_response_id, turn.tenant)
    await connection.execute(sa.insert(responses).values({**values, "chain": chain, "events_bytes": 0}))
    return False
