"""The store is locked, or its database goes and comes, under a live server: clear errors, and nothing is lost."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import httpx
import pytest

from support.postgres import PostgresServer
from support.server import LiveServer, live_server
from support.store_locks import locked_often

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]
FLAGS = ("--engine", "simulated", "--store-timeout-s", "2", "--capacity", "16", "--max-waiting", "64")
TURN = {"model": "simulated", "input": "EMIT:hello"}


async def ask(client: httpx.AsyncClient, **fields: object) -> httpx.Response:
    return await client.post("/v1/responses", json=TURN | fields)


def check_refused(answer: httpx.Response) -> None:
    assert answer.status_code == 503, answer.text
    assert int(answer.headers["retry-after"]) >= 1
    assert answer.json()["error"]["code"] == "store_unavailable"


async def check_each_is_there_iff_told(client: httpx.AsyncClient, answers: list[httpx.Response]) -> int:
    """How many were told of; each of them is there."""
    told = [answer.json()["id"] for answer in answers if answer.status_code == 200]
    for answer in answers:
        if answer.status_code != 200:
            check_refused(answer)
    for response_id in told:
        assert (await client.get(f"/v1/responses/{response_id}")).status_code == 200
    return len(told)


async def test_writers_beside_another_process_that_locks_now_and_then_all_get_through(tmp_path: Path) -> None:
    """Shorter than the store's timeout a lock is no error at all."""
    store = tmp_path / "responses.db"
    with live_server(*FLAGS, store=store) as server:
        async with httpx.AsyncClient(base_url=server.base_url, timeout=60) as client:
            with locked_often(str(store), hold_s=(0.05, 0.05), free_s=(0.02, 0.02)):
                answers = await asyncio.gather(*(ask(client) for _ in range(60)))
                assert [answer.status_code for answer in answers] == [200] * 60
                assert await check_each_is_there_iff_told(client, answers) == 60


async def test_a_store_locked_for_long_is_a_503_and_works_again_afterwards(tmp_path: Path) -> None:
    store = tmp_path / "responses.db"
    with live_server(*FLAGS, store=store) as server:
        async with httpx.AsyncClient(base_url=server.base_url, timeout=60) as client:
            first = (await ask(client)).json()
            with sqlite3.connect(store, isolation_level=None) as other:
                other.execute("BEGIN IMMEDIATE")
                refused = await asyncio.gather(*(ask(client) for _ in range(12)))
                streamed = await terminal_events(server)
                unstored = await ask(client, store=False)
                other.execute("ROLLBACK")
            other.close()
            for answer in refused:
                check_refused(answer)
            assert streamed == ["error", "response.failed"]
            assert unstored.status_code == 200
            assert (await ask(client, previous_response_id=first["id"])).status_code == 200
            with sqlite3.connect(store) as reader:
                assert reader.execute("SELECT count(*) FROM responses").fetchone() == (2,)
            reader.close()
        check_calm(server)


async def terminal_events(server: LiveServer) -> list[str]:
    """The last two events of a streamed turn."""
    body = TURN | {"stream": True}
    async with (
        httpx.AsyncClient(base_url=server.base_url, timeout=60) as client,
        client.stream("POST", "/v1/responses", json=body) as response,
    ):
        lines = [line async for line in response.aiter_lines()]
    return [line.removeprefix("event: ") for line in lines if line.startswith("event: ")][-2:]


def check_calm(server: LiveServer) -> None:
    """What went wrong was foreseen: no traceback in the log."""
    assert not any("Traceback" in line for line in server.output), "".join(server.output)


@pytest.mark.postgres
async def test_postgresql_that_stops_and_comes_back_is_used_again(postgres: PostgresServer) -> None:
    store = postgres.create("away")
    with live_server(*FLAGS, store=store) as server:
        async with httpx.AsyncClient(base_url=server.base_url, timeout=60) as client:
            before = await asyncio.gather(*(ask(client) for _ in range(20)))
            asking = [asyncio.create_task(ask(client, input="SLOW:20 " + "x" * 30)) for _ in range(20)]
            await asyncio.to_thread(postgres.stop)
            during = await asyncio.gather(*asking)
            check_refused(await ask(client))
            check_refused(await client.get(f"/v1/responses/{before[0].json()['id']}"))
            assert (await client.get("/health")).status_code == 200
            await asyncio.to_thread(postgres.start)
            after = await asyncio.gather(*(ask(client) for _ in range(20)))
            assert await check_each_is_there_iff_told(client, [*before, *after]) == 40
            await check_each_is_there_iff_told(client, during)
        check_calm(server)
