"""The tables, as SQLAlchemy sees them. `migrations/` makes them; a test holds the two equal."""

from __future__ import annotations

import sqlalchemy as sa

metadata = sa.MetaData()

responses = sa.Table(
    "responses",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("tenant", sa.Text, nullable=False),
    sa.Column("model", sa.Text, nullable=False),
    # Not a foreign key: a parent may expire before its child, and may never have been stored at all.
    sa.Column("previous_response_id", sa.Text, nullable=True),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("expires_at", sa.Double, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("instructions", sa.Text, nullable=True),
    sa.Column("input", sa.LargeBinary, nullable=False),
    sa.Column("outcome", sa.LargeBinary, nullable=False),
    sa.Column("echo", sa.LargeBinary, nullable=False),
    sa.Column("size_bytes", sa.BigInteger, nullable=False),
    sa.Index("ix_responses_expires_at", "expires_at"),
    sa.Index("ix_responses_created_at", "created_at", "id", "size_bytes"),
)
