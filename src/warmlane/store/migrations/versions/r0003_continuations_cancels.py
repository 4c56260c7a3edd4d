"""What continues a response is found, and a response in progress can be asked to stop by any server."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.add_column("responses", sa.Column("cancelled", sa.Boolean, nullable=False, server_default=sa.false()))
    continues = sa.text("previous_response_id IS NOT NULL")
    op.create_index(
        "ix_responses_previous",
        "responses",
        ["previous_response_id"],
        sqlite_where=continues,
        postgresql_where=continues,
    )
