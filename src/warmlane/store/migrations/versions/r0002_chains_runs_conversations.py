"""Which tree a response is in, responses that are not finished with their events, and conversations."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

TREES = """
WITH RECURSIVE tree (id, tenant, chain) AS (
    SELECT r.id, r.tenant, r.id FROM responses r
    WHERE NOT EXISTS (SELECT 1 FROM responses p WHERE p.id = r.previous_response_id AND p.tenant = r.tenant)
    UNION
    SELECT r.id, r.tenant, tree.chain FROM tree
    JOIN responses r ON r.previous_response_id = tree.id AND r.tenant = tree.tenant
)
UPDATE responses SET chain = tree.chain FROM tree WHERE tree.id = responses.id
"""


def upgrade() -> None:
    for column in (
        sa.Column("chain", sa.Text, nullable=False, server_default=""),
        sa.Column("domain", sa.LargeBinary, nullable=True),
        sa.Column("error", sa.LargeBinary, nullable=True),
        sa.Column("server", sa.Text, nullable=True),
        sa.Column("seen_at", sa.Double, nullable=True),
        sa.Column("events_bytes", sa.BigInteger, nullable=False, server_default="0"),
    ):
        op.add_column("responses", column)
    op.create_index("ix_responses_children", "responses", ["previous_response_id"])
    op.execute(TREES)
    op.drop_index("ix_responses_children", "responses")
    op.drop_index("ix_responses_created_at", "responses")
    op.create_index("ix_responses_chain", "responses", ["chain", "created_at", "size_bytes", "events_bytes", "seen_at"])
    op.create_index("ix_responses_tenant", "responses", ["tenant"])
    working = sa.text("server IS NOT NULL")
    op.create_index("ix_responses_server", "responses", ["server"], sqlite_where=working, postgresql_where=working)
    _create_events()
    _create_conversations()


def _create_events() -> None:
    op.create_table(
        "response_events",
        sa.Column("response_id", sa.Text, sa.ForeignKey("responses.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )


def _create_conversations() -> None:
    op.create_table(
        "conversations",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("created_at", sa.Double, nullable=False),
        sa.Column("used_at", sa.Double, nullable=False),
        sa.Column("metadata", sa.LargeBinary, nullable=False),
        sa.Column("last_response_id", sa.Text, nullable=True),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("next_position", sa.BigInteger, nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_conversations_tenant", "conversations", ["tenant"])
    op.create_table(
        "conversation_entries",
        sa.Column("conversation_id", sa.Text, sa.ForeignKey("conversations.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("position", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("message", sa.LargeBinary, nullable=False),
        sa.UniqueConstraint("conversation_id", "id", name="uq_conversation_entries_id"),
    )
