"""Conversations over SQLAlchemy Core."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from warmlane.conversation.kept import Conversation, Entry, Transcript
from warmlane.store.base import StoredTurn
from warmlane.store.conversations import Continued
from warmlane.store.database import Database
from warmlane.store.rows import pack_message, to_conversation, to_entry, turn_entries
from warmlane.store.schema import conversation_entries, conversations


class SqlConversations:
    """A `ConversationStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, conversation: Conversation, entries: Sequence[Entry] = ()) -> None:
        await self._database.run(self._create(conversation, entries))

    async def get(self, conversation_id: str, tenant: str) -> Conversation | None:
        return await self._database.run(self._get(conversation_id, tenant))

    async def set_metadata(self, conversation_id: str, tenant: str, metadata: bytes) -> Conversation | None:
        return await self._database.run(self._set_metadata(conversation_id, tenant, metadata))

    async def delete(self, conversation_id: str, tenant: str) -> bool:
        return await self._database.run(self._delete(conversation_id, tenant))

    async def read(self, conversation_id: str, tenant: str) -> Transcript | None:
        return await self._database.run(self._read(conversation_id, tenant))

    async def add(self, conversation_id: str, tenant: str, entries: Sequence[Entry], *, now: float) -> bool:
        return await self._database.run(self._add(conversation_id, tenant, entries, now))

    async def replace(self, conversation_id: str, tenant: str, entry: Entry, *, now: float) -> bool:
        return await self._database.run(self._change(conversation_id, tenant, entry.id, entry, now))

    async def remove(self, conversation_id: str, tenant: str, entry_id: str, *, now: float) -> bool:
        return await self._database.run(self._change(conversation_id, tenant, entry_id, None, now))

    async def _create(self, conversation: Conversation, entries: Sequence[Entry]) -> None:
        new = sa.insert(conversations).values(
            id=conversation.id,
            tenant=conversation.tenant,
            created_at=conversation.created_at,
            used_at=conversation.used_at,
            metadata=conversation.metadata,
            last_response_id=conversation.last_response_id,
            revision=conversation.revision,
            next_position=0,
            size_bytes=len(conversation.metadata),
        )
        async with self._database.writing() as connection:
            await connection.execute(new)
            if entries:
                await _append(connection, conversation.id, conversation.tenant, entries, now=conversation.used_at)

    async def _get(self, conversation_id: str, tenant: str) -> Conversation | None:
        async with self._database.reading() as connection:
            result = await connection.execute(sa.select(conversations).where(_is(conversation_id, tenant)))
            row = result.mappings().one_or_none()
        return None if row is None else to_conversation(row)

    async def _set_metadata(self, conversation_id: str, tenant: str, metadata: bytes) -> Conversation | None:
        changed = (
            sa.update(conversations)
            .where(_is(conversation_id, tenant))
            .values(
                metadata=metadata,
                size_bytes=conversations.c.size_bytes - sa.func.length(conversations.c.metadata) + len(metadata),
            )
            .returning(*conversations.c)
        )
        async with self._database.writing() as connection:
            row = (await connection.execute(changed)).mappings().one_or_none()
        return None if row is None else to_conversation(row)

    async def _delete(self, conversation_id: str, tenant: str) -> bool:
        async with self._database.writing() as connection:
            result = await connection.execute(sa.delete(conversations).where(_is(conversation_id, tenant)))
            return result.rowcount > 0

    async def _read(self, conversation_id: str, tenant: str) -> Transcript | None:
        said = (
            sa.select(conversations, conversation_entries.c.id.label("entry_id"), conversation_entries.c.message)
            .select_from(conversations)
            .outerjoin(conversation_entries, conversation_entries.c.conversation_id == conversations.c.id)
            .where(_is(conversation_id, tenant))
            .order_by(conversation_entries.c.position)
        )
        async with self._database.reading() as connection:
            rows = (await connection.execute(said)).mappings().all()
        if not rows:
            return None
        entries = (to_entry(row["entry_id"], row["message"]) for row in rows if row["entry_id"] is not None)
        return Transcript(to_conversation(rows[0]), tuple(entries))

    async def _add(self, conversation_id: str, tenant: str, entries: Sequence[Entry], now: float) -> bool:
        async with self._database.writing() as connection:
            return await _append(connection, conversation_id, tenant, entries, now=now)

    async def _change(self, conversation_id: str, tenant: str, entry_id: str, entry: Entry | None, now: float) -> bool:
        """Replace an entry, or with None take it out."""
        named = sa.and_(
            conversation_entries.c.conversation_id == conversation_id, conversation_entries.c.id == entry_id
        )
        async with self._database.writing() as connection:
            # The conversation's row first: it says whose it is, and keeps others out until the end.
            touched = sa.update(conversations).where(_is(conversation_id, tenant))
            if not (await connection.execute(touched.values(used_at=now))).rowcount:
                return False
            before = (await connection.execute(sa.select(conversation_entries.c.message).where(named))).scalar()
            if before is None:
                return False
            after = b"" if entry is None else pack_message(entry.message)
            if entry is None:
                await connection.execute(sa.delete(conversation_entries).where(named))
            else:
                await connection.execute(sa.update(conversation_entries).where(named).values(message=after))
            grown = conversations.c.size_bytes + len(after) - len(before)
            revision = conversations.c.revision + 1
            await connection.execute(touched.values(size_bytes=grown, revision=revision, last_response_id=None))
        return True


async def has_turn(connection: AsyncConnection, turn: StoredTurn, continued: Continued) -> bool:
    """Whether what the turn says is in its conversation."""
    entries = [entry.id for entry in turn_entries(turn)]
    mine = sa.select(conversation_entries.c.position).where(
        conversation_entries.c.conversation_id == continued.conversation_id, conversation_entries.c.id.in_(entries)
    )
    return (await connection.execute(mine.limit(1))).first() is not None


async def append_turn(connection: AsyncConnection, turn: StoredTurn, continued: Continued) -> None:
    """Put what a turn was asked and what it answered at the end of its conversation, if that is still there."""
    # Another turn may have ended in it meanwhile, or a client changed it: then this one's session is not what it says.
    last = sa.case((conversations.c.revision == continued.revision, turn.id), else_=None)
    await _append(
        connection,
        continued.conversation_id,
        turn.tenant,
        turn_entries(turn),
        now=turn.created_at,
        last_response_id=last,
    )


async def _append(
    connection: AsyncConnection,
    conversation_id: str,
    tenant: str,
    entries: Sequence[Entry],
    *,
    now: float,
    last_response_id: sa.ColumnElement[str] | None = None,
) -> bool:
    """Put entries at the end of a conversation. False if there is none of that id."""
    packed = [(entry.id, pack_message(entry.message)) for entry in entries]
    # The update locks the conversation's row, so that two writers do not take the same positions.
    reserved = (
        sa.update(conversations)
        .where(_is(conversation_id, tenant))
        .values(
            next_position=conversations.c.next_position + len(packed),
            size_bytes=conversations.c.size_bytes + sum(len(message) for _, message in packed),
            used_at=now,
            revision=conversations.c.revision + 1,
            last_response_id=last_response_id,
        )
        .returning(conversations.c.next_position)
    )
    end = (await connection.execute(reserved)).scalar_one_or_none()
    if end is None:
        return False
    rows = [
        {"conversation_id": conversation_id, "position": position, "id": entry_id, "message": message}
        for position, (entry_id, message) in enumerate(packed, end - len(packed))
    ]
    if rows:
        await connection.execute(sa.insert(conversation_entries), rows)
    return True


def _is(conversation_id: str, tenant: str) -> sa.ColumnElement[bool]:
    return sa.and_(conversations.c.id == conversation_id, conversations.c.tenant == tenant)
