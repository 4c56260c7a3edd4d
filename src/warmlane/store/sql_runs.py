"""Runs and their event logs over SQLAlchemy Core."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from warmlane.store import queries
from warmlane.store.base import StoredTurn, TurnStatus
from warmlane.store.conversations import Continued
from warmlane.store.database import Database
from warmlane.store.rows import to_columns
from warmlane.store.runs import EVENTS_PAGE, LOST_AFTER_S, LoggedEvent, LostRun, OwnRun
from warmlane.store.schema import response_events, responses
from warmlane.store.servers import Listener, is_alive
from warmlane.store.sql_conversations import append_turn
from warmlane.store.write import write_row

_UNFINISHED = responses.c.server.is_not(None)


class SqlRuns:
    """A `RunLog`. `server` is this process's `servers.this_server()`."""

    def __init__(self, database: Database, *, server: str) -> None:
        self._database = database
        self._server = server
        self._listener = Listener(gap_s=LOST_AFTER_S / 2)

    async def begin(self, turn: StoredTurn) -> None:
        await self._database.run(self._begin(turn))

    async def complete(self, turn: StoredTurn, *, continued: Continued | None = None) -> bool:
        return await self._database.run(self._complete(turn, continued))

    async def set_status(
        self, response_id: str, tenant: str, status: TurnStatus, *, error: bytes | None = None
    ) -> bool:
        return await self._database.run(self._set_status(response_id, tenant, status, error))

    async def ask_to_cancel(self, response_id: str, tenant: str) -> bool:
        return await self._database.run(self._ask_to_cancel(response_id, tenant))

    async def mine(self) -> tuple[OwnRun, ...]:
        return await self._database.run(self._mine())

    async def withdraw(self, response_id: str, tenant: str) -> bool:
        return await self._database.run(self._withdraw(response_id, tenant))

    async def append(self, response_id: str, tenant: str, events: Sequence[LoggedEvent]) -> bool:
        return await self._database.run(self._append(response_id, tenant, events))

    async def events(
        self, response_id: str, tenant: str, *, now: float, after: int = -1, limit: int = EVENTS_PAGE
    ) -> tuple[LoggedEvent, ...] | None:
        return await self._database.run(self._events(response_id, tenant, now, after, limit))

    async def tend(self, *, now: float, error: bytes) -> tuple[LostRun, ...]:
        return await self._database.run(self._tend(now, error))

    async def _begin(self, turn: StoredTurn) -> None:
        async with self._database.writing() as connection:
            await write_row(connection, turn, server=self._server, seen_at=turn.created_at)

    async def _complete(self, turn: StoredTurn, continued: Continued | None) -> bool:
        mine = sa.update(responses).where(queries.is_row(turn.id, turn.tenant), responses.c.server == self._server)
        async with self._database.writing() as connection:
            ended = await connection.execute(mine.values({**to_columns(turn), "server": None, "seen_at": None}))
            if not ended.rowcount:
                return False
            if continued is not None:
                await append_turn(connection, turn, continued)
        return True

    async def _set_status(self, response_id: str, tenant: str, status: TurnStatus, error: bytes | None) -> bool:
        changed = sa.update(responses).where(queries.is_row(response_id, tenant), _UNFINISHED)
        size = responses.c.size_bytes + len(error or b"")
        changed = changed.values(status=status.value, error=error, size_bytes=size)
        if status.ended:
            changed = changed.values(server=None, seen_at=None)
        async with self._database.writing() as connection:
            return (await connection.execute(changed)).rowcount > 0

    async def _append(self, response_id: str, tenant: str, events: Sequence[LoggedEvent]) -> bool:
        sizes = {event.sequence: len(event.data) for event in events}
        rows = [{"response_id": response_id, "sequence": e.sequence, "data": e.data} for e in events]
        counted = sa.update(responses).where(queries.is_row(response_id, tenant))
        async with self._database.writing() as connection:
            # Counted first: the update says whose the response is, and keeps it from being deleted until the end.
            if not (await connection.execute(_grown(counted, sum(sizes.values())))).rowcount:
                return False
            if rows:
                new = queries.insert_missing(response_events, connection.dialect).returning(response_events.c.sequence)
                added = set((await connection.execute(new, rows)).scalars())
                known_bytes = sum(size for sequence, size in sizes.items() if sequence not in added)
                if known_bytes:
                    await connection.execute(_grown(counted, -known_bytes))
        return True

    async def _ask_to_cancel(self, response_id: str, tenant: str) -> bool:
        asked = sa.update(responses).where(queries.is_row(response_id, tenant), _UNFINISHED).values(cancelled=True)
        async with self._database.writing() as connection:
            return (await connection.execute(asked)).rowcount > 0

    async def _mine(self) -> tuple[OwnRun, ...]:
        mine = sa.select(responses.c.id, responses.c.tenant, responses.c.cancelled)
        async with self._database.reading() as connection:
            rows = await connection.execute(mine.where(responses.c.server == self._server))
            return tuple(OwnRun(*row) for row in rows)

    async def _withdraw(self, response_id: str, tenant: str) -> bool:
        mine = sa.delete(responses).where(queries.is_row(response_id, tenant), responses.c.server == self._server)
        async with self._database.writing() as connection:
            return (await connection.execute(mine)).rowcount > 0

    async def _events(
        self, response_id: str, tenant: str, now: float, after: int, limit: int
    ) -> tuple[LoggedEvent, ...] | None:
        logged = (
            sa.select(response_events.c.sequence, response_events.c.data)
            .select_from(responses)
            .outerjoin(
                response_events,
                sa.and_(response_events.c.response_id == responses.c.id, response_events.c.sequence > after),
            )
            .where(queries.is_live(response_id, tenant, now))
            .order_by(response_events.c.sequence)
            .limit(limit)
        )
        async with self._database.reading() as connection:
            rows = (await connection.execute(logged)).all()
        if not rows:
            return None
        return tuple(LoggedEvent(sequence, data) for sequence, data in rows if sequence is not None)

    async def _tend(self, now: float, error: bytes) -> tuple[LostRun, ...]:
        heard_of = (
            sa.select(responses.c.server, sa.func.max(responses.c.seen_at).label("seen_at"))
            .where(_UNFINISHED)
            .group_by(responses.c.server)
        )
        async with self._database.reading() as connection:
            said = {row.server: row.seen_at for row in await connection.execute(heard_of)}
        silent_s = self._listener.silent_s(said, now=now)
        lost = [server for server in said if self._is_lost(server, silent_s[server])]
        if not said:
            return ()
        async with self._database.writing() as connection:
            # Of two servers that take each other for dead each wants the other's rows as well as its own.
            await connection.execute(queries.in_lock_order(responses, responses.c.server.in_([self._server, *lost])))
            await connection.execute(sa.update(responses).where(responses.c.server == self._server).values(seen_at=now))
            ended = sa.update(responses).where(responses.c.server.in_(lost))
            ended = ended.values(status=TurnStatus.FAILED.value, error=error, server=None, seen_at=None)
            rows = (await connection.execute(ended.returning(responses.c.id, responses.c.tenant))).all()
        return tuple(LostRun(response_id, tenant) for response_id, tenant in rows)

    def _is_lost(self, server: str, silent_s: float) -> bool:
        if server == self._server:
            return False
        alive = is_alive(server)
        return silent_s > LOST_AFTER_S if alive is None else not alive


def _grown(update: sa.Update, n_bytes: int) -> sa.Update:
    return update.values(events_bytes=responses.c.events_bytes + n_bytes)
