"""The session list and ending a session, at the edge."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from support.edge import edge_client
from support.fake_turns import FakeHost, FakeTurns
from warmlane.api.auth import ApiKey, KeyRing
from warmlane.api.settings import EdgeSettings
from warmlane.host.view import SessionCard

KEYS = KeyRing(
    [ApiKey("key-a", "ann"), ApiKey("key-b", "bob"), ApiKey("key-admin", "", admin=True)],
)


def key(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer key-{name}"}


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    warm = [("ann", SessionCard("resp_1", "m", 1.23456, 40)), ("bob", SessionCard("resp_2", "m", 2.0, 50))]
    host = FakeHost(warm=warm)
    async with edge_client(FakeTurns(), host=host, settings=EdgeSettings(keys=KEYS)) as made:
        yield made


async def test_a_tenant_sees_its_own_sessions(client: httpx.AsyncClient) -> None:
    listed = (await client.get("/v1/sessions", headers=key("a"))).json()
    assert listed == {
        "object": "list",
        "data": [{"id": "resp_1", "object": "session", "model": "m", "age_s": 1.235, "tokens": 40}],
    }


async def test_an_admin_sees_all(client: httpx.AsyncClient) -> None:
    listed = (await client.get("/v1/sessions", headers=key("admin"))).json()
    assert [session["id"] for session in listed["data"]] == ["resp_1", "resp_2"]


async def test_ending_a_session(client: httpx.AsyncClient) -> None:
    ended = await client.delete("/v1/sessions/resp_1", headers=key("a"))
    assert (ended.status_code, ended.json()) == (200, {"id": "resp_1", "object": "session", "deleted": True})
    again = await client.delete("/v1/sessions/resp_1", headers=key("a"))
    assert (again.status_code, again.json()["error"]["param"]) == (404, "session_id")


async def test_a_foreign_session_is_an_unknown_one(client: httpx.AsyncClient) -> None:
    foreign = await client.delete("/v1/sessions/resp_2", headers=key("a"))
    unknown = await client.delete("/v1/sessions/resp_9", headers=key("a"))
    assert foreign.status_code == unknown.status_code == 404
    assert foreign.text == unknown.text.replace("resp_9", "resp_2")
    assert (await client.delete("/v1/sessions/resp_2", headers=key("admin"))).status_code == 200


async def test_without_a_key_there_is_nothing_to_see(client: httpx.AsyncClient) -> None:
    assert (await client.get("/v1/sessions")).status_code == 401
