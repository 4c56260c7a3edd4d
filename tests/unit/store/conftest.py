from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from support.postgres import PostgresServer
from warmlane.store import ResponseStore, open_store


@pytest.fixture(scope="session")
def shared_url(postgres: PostgresServer) -> str:
    """A database that tests of this folder use one after the other."""
    return postgres.create("shared")


@pytest.fixture(params=["file", "memory", pytest.param("postgres", marks=pytest.mark.postgres)])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ResponseStore]:
    """Every kind of store, empty."""
    match request.param:
        case "memory":
            url = "memory:"
        case "postgres":
            url = request.getfixturevalue("shared_url")
        case _:
            url = str(tmp_path / "data" / "warmlane.db")
    opened = await open_store(url)
    if request.param == "postgres":
        await empty(opened)
    yield opened
    await opened.close()


async def empty(store: ResponseStore) -> None:
    """Whatever earlier tests have left goes: each tenant they use."""
    for tenant in ("ada", "bob"):
        await store.erase(tenant)
