"""The tables, as SQLAlchemy sees them. `migrations/` makes them; a test holds the two equal."""

from __future__ import annotations

import sqlalchemy as sa

from warmlane.store.text import AnyText

metadata = sa.MetaData()

responses = sa.Table(
    "responses",
    metadata,
    sa.Column("id", AnyText, primary_key=True),
    sa.Column("tenant", AnyText, nullable=False),
    sa.Column("model", AnyText, nullable=False),
    # Not a foreign key: a parent may be deleted before its child, and may never have been stored at all.
    sa.Column("previous_response_id", AnyText, nullable=True),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("expires_at", sa.Double, nullable=False),
    sa.Column("status", AnyText, nullable=False),
    sa.Column("instructions", AnyText, nullable=True),
    sa.Column("input", sa.LargeBinary, nullable=False),
    # Empty as long as there is none.
    sa.Column("outcome", sa.LargeBinary, nullable=False),
    sa.Column("echo", sa.LargeBinary, nullable=False),
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
    # The id of the first response of the conversation tree this one is in, as far as it is stored.
    sa.Column("chain", AnyText, nullable=False),
    sa.Column("domain", sa.LargeBinary, nullable=True),
    sa.Column("error", sa.LargeBinary, nullable=True),
    # The server that works on it, and when that was last heard of; both null once it has ended.
    sa.Column("server", AnyText, nullable=True),
    sa.Column("seen_at", sa.Double, nullable=True),
    sa.Column("events_bytes", sa.BigInteger, nullable=False),
    # Any server may ask for it; the one that works on it heeds it.
    sa.Column("cancelled", sa.Boolean, nullable=False),
    sa.Index("ix_responses_expires_at", "expires_at"),
    sa.Index("ix_responses_chain", "chain", "created_at", "size_bytes", "events_bytes", "seen_at"),
    sa.Index("ix_responses_tenant", "tenant"),
)
sa.Index(
    "ix_responses_server",
    responses.c.server,
    sqlite_where=responses.c.server.is_not(None),
    postgresql_where=responses.c.server.is_not(None),
)
sa.Index(
    "ix_responses_previous",
    responses.c.previous_response_id,
    sqlite_where=responses.c.previous_response_id.is_not(None),
    postgresql_where=responses.c.previous_response_id.is_not(None),
)

response_events = sa.Table(
    "response_events",
    metadata,
    sa.Column("response_id", AnyText, sa.ForeignKey("responses.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("data", sa.LargeBinary, nullable=False),
)

conversations = sa.Table(
    "conversations",
    metadata,
    sa.Column("id", AnyText, primary_key=True),
    sa.Column("tenant", AnyText, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("used_at", sa.Double, nullable=False),
    sa.Column("metadata", sa.LargeBinary, nullable=False),
    # The response whose turn said all that is here, nothing added or deleted since.
    sa.Column("last_response_id", AnyText, nullable=True),
    sa.Column("revision", sa.BigInteger, nullable=False),
    sa.Column("next_position", sa.BigInteger, nullable=False),
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
    sa.Index("ix_conversations_tenant", "tenant"),
)

conversation_entries = sa.Table(
    "conversation_entries",
    metadata,
    sa.Column("conversation_id", AnyText, sa.ForeignKey("conversations.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("position", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("id", AnyText, nullable=False),
    sa.Column("message", sa.LargeBinary, nullable=False),
    sa.UniqueConstraint("conversation_id", "id", name="uq_conversation_entries_id"),
)
