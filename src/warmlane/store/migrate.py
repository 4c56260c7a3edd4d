"""Bringing a database to this version's schema."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from warmlane.errors import ConfigError

MIGRATIONS: Final = "warmlane.store:migrations"


def migrate(
    connection: sa.Connection, *, back_up: Callable[[str], object] | None = None, scripts: str = MIGRATIONS
) -> None:
    """Run what is missing, inside the caller's transaction, which must hold the write lock.

    `back_up` is called with the old revision before an existing schema is changed. `scripts` is an Alembic script
    location. Raises `ConfigError` for a schema of a newer version, and for a database that is not ours.
    """
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", scripts)
    config.set_main_option("path_separator", "os")
    directory = ScriptDirectory.from_config(config)
    head = directory.get_current_head()
    current = MigrationContext.configure(connection).get_current_revision()
    if current == head:
        return
    if current is None:
        if sa.inspect(connection).get_table_names():
            raise ConfigError("The response store's database holds other tables. Give --store a database of its own.")
    elif current not in {script.revision for script in directory.walk_revisions()}:
        raise ConfigError(
            f"The response store was written by a newer Warmlane (schema {current}; this one knows {head}). "
            "Upgrade Warmlane, or give --store another database."
        )
    elif back_up is not None:
        back_up(current)
    command.upgrade(config, "head")
