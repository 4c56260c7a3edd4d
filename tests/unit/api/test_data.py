"""DELETE /v1/data at the edge: whose data one may delete."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from support.edge import edge_client
from support.fake_turns import FakeArchive, FakeTurns, outcome
from warmlane.api.auth import ApiKey, KeyRing
from warmlane.api.settings import EdgeSettings
from warmlane.conversation.messages import Text
from warmlane.turns.archive import Archived

KEYS = KeyRing([ApiKey("key-a", "ann"), ApiKey("key-b", "bob"), ApiKey("key-admin", "", admin=True)])


def key(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer key-{name}"}


@pytest.fixture
def archive() -> FakeArchive:
    row = Archived("resp_1", b"{}", outcome(Text("hello")), 1.0, ())
    return FakeArchive(rows={(tenant, "resp_1"): row for tenant in ("", "ann", "bob")})


@pytest.fixture
async def client(archive: FakeArchive) -> AsyncIterator[httpx.AsyncClient]:
    async with edge_client(FakeTurns(), archive=archive, settings=EdgeSettings(keys=KEYS)) as made:
        yield made


async def test_a_tenant_deletes_its_own(client: httpx.AsyncClient, archive: FakeArchive) -> None:
    answer = await client.delete("/v1/data", headers=key("a"))
    assert answer.json() == {"object": "data", "tenant": "ann", "responses": 1, "conversations": 0, "deleted": True}
    assert set(archive.rows) == {("", "resp_1"), ("bob", "resp_1")}


async def test_a_tenant_does_not_delete_anothers(client: httpx.AsyncClient, archive: FakeArchive) -> None:
    for tenant in ("bob", "nobody"):
        answer = await client.delete("/v1/data", params={"tenant": tenant}, headers=key("a"))
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "admin_only")
    assert len(archive.rows) == 3


async def test_the_admin_deletes_anybodys(client: httpx.AsyncClient, archive: FakeArchive) -> None:
    answer = await client.delete("/v1/data", params={"tenant": "bob"}, headers=key("admin"))
    assert answer.json()["responses"] == 1
    assert set(archive.rows) == {("", "resp_1"), ("ann", "resp_1")}


async def test_without_keys_there_is_one_tenant() -> None:
    archive = FakeArchive(rows={("", "resp_1"): Archived("resp_1", b"{}", outcome(Text("hello")), 1.0, ())})
    async with edge_client(FakeTurns(), archive=archive) as client:
        assert (await client.delete("/v1/data")).json()["responses"] == 1
    assert not archive.rows
