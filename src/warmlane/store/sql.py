"""The response store over SQLAlchemy Core."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import sqlalchemy as sa

from warmlane.store import queries
from warmlane.store.base import Chain, Erased, InUse, StoredTurn
from warmlane.store.conversations import Continued
from warmlane.store.database import Database
from warmlane.store.dropping import BATCH_BYTES, BATCH_ROWS, Dropper
from warmlane.store.keeping import Keeper
from warmlane.store.rows import to_chain_turn, to_turn
from warmlane.store.schema import conversations, responses
from warmlane.store.sql_conversations import SqlConversations, append_turn, has_turn
from warmlane.store.sql_runs import SqlRuns
from warmlane.store.write import write_row


class SqlResponseStore:
    """A `ResponseStore` in one SQL database. `server` names this process in the rows of its runs; one transaction of a
    deletion takes at most `batch` rows and about `batch_bytes` of payload."""

    def __init__(
        self, database: Database, *, server: str, batch: int = BATCH_ROWS, batch_bytes: int = BATCH_BYTES
    ) -> None:
        self._database = database
        self._batch = batch
        self._dropper = Dropper(database, rows=batch, n_bytes=batch_bytes)
        self._keeper = Keeper(database, rows=batch)
        self._runs = SqlRuns(database, server=server)
        self._conversations = SqlConversations(database)

    @property
    def runs(self) -> SqlRuns:
        return self._runs

    @property
    def conversations(self) -> SqlConversations:
        return self._conversations

    async def save(self, turn: StoredTurn, *, continued: Continued | None = None) -> None:
        await self._database.run(self._save(turn, continued))

    async def get(self, response_id: str, tenant: str, *, now: float) -> StoredTurn | None:
        return await self._database.run(self._get(response_id, tenant, now))

    async def history(self, response_id: str, tenant: str, *, now: float) -> Chain | None:
        return await self._database.run(self._history(response_id, tenant, now))

    async def delete(self, response_id: str, tenant: str) -> bool:
        return await self._dropper.one_response(queries.is_row(response_id, tenant))

    async def prune(
        self, *, now: float, max_bytes: int | None = None, in_use: Callable[[], InUse] = InUse
    ) -> tuple[str, ...]:
        await self._keeper.keep(now=now, in_use=in_use())
        expired = await self._dropper.responses(queries.expired(now))
        gone = list(expired.response_ids)
        beyond = [] if max_bytes is None else await self._database.run(self._beyond(max_bytes))
        for some in self._batches([unit for kind, unit in beyond if kind == queries.Unit.CHAIN]):
            idle = queries.in_idle_chains(some, in_use().responses)
            gone += (await self._dropper.responses(idle)).response_ids
        for some in self._batches([unit for kind, unit in beyond if kind == queries.Unit.CONVERSATION]):
            used = queries.is_one_of(conversations, in_use().conversations)
            await self._dropper.conversations(sa.and_(conversations.c.id.in_(some), ~used))
        return tuple(gone)

    async def domains(self, tenant: str) -> frozenset[bytes]:
        return await self._database.run(self._domains(tenant))

    async def erase(self, tenant: str) -> Erased:
        erased = await self._dropper.responses(responses.c.tenant == tenant)
        ids = await self._dropper.conversations(conversations.c.tenant == tenant)
        return Erased(erased.response_ids, ids, erased.domains)

    async def close(self) -> None:
        await self._database.close()

    async def _save(self, turn: StoredTurn, continued: Continued | None) -> None:
        async with self._database.writing() as connection:
            replaced = await write_row(connection, turn, server=None, seen_at=None)
            # What was told to have failed may be there, and is then saved again.
            if continued is not None and not (replaced and await has_turn(connection, turn, continued)):
                await append_turn(connection, turn, continued)

    async def _get(self, response_id: str, tenant: str, now: float) -> StoredTurn | None:
        async with self._database.reading() as connection:
            result = await connection.execute(queries.live_row(response_id, tenant, now))
            row = result.mappings().one_or_none()
        return None if row is None else to_turn(row)

    async def _history(self, response_id: str, tenant: str, now: float) -> Chain | None:
        async with self._database.reading() as connection:
            result = await connection.execute(queries.chain_rows(response_id, tenant, now))
            rows = result.mappings().all()
        if not rows or rows[0][responses.c.previous_response_id] is not None:
            return None
        turns = [turn for turn in map(to_chain_turn, rows) if turn is not None]
        return Chain(tuple(turns)) if len(turns) == len(rows) else None

    async def _domains(self, tenant: str) -> frozenset[bytes]:
        of_tenant = sa.select(responses.c.domain).where(responses.c.tenant == tenant).distinct()
        async with self._database.reading() as connection:
            return frozenset(domain for domain in (await connection.execute(of_tenant)).scalars() if domain)

    async def _beyond(self, max_bytes: int) -> list[tuple[str, str]]:
        async with self._database.reading() as connection:
            rows = (await connection.execute(queries.units_beyond(max_bytes))).mappings()
            return [(row["kind"], row["unit"]) for row in rows]

    def _batches(self, ids: Sequence[str]) -> Iterator[Sequence[str]]:
        for start in range(0, len(ids), self._batch):
            yield ids[start : start + self._batch]
