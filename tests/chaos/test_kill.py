"""kill -9 of a whole server in the middle of its turns: what a client was told of is there afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.killing import check_kept, killed_midway
from support.postgres import PostgresServer

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]
TURNS = 20


@pytest.mark.parametrize("kill_after", [1, 23])
async def test_a_killed_server_has_every_response_a_client_saw_end(tmp_path: Path, kill_after: int) -> None:
    store = tmp_path / "responses.db"
    check_kept(store, await killed_midway(store, turns=TURNS, kill_after=kill_after))


@pytest.mark.postgres
async def test_a_killed_server_on_postgresql_has_every_response_a_client_saw_end(postgres: PostgresServer) -> None:
    store = postgres.create("killed")
    check_kept(store, await killed_midway(store, turns=TURNS, kill_after=17))
