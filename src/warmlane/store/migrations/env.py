"""Alembic's entry: migrate the connection the caller is already in a transaction on."""

from alembic import context

from warmlane.store.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
