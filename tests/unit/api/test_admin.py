"""Models in both dialects, probes, metrics."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import httpx
import pytest
from anthropic.types import ModelInfo
from openai.types import Model
from prometheus_client import CollectorRegistry, Counter

from support.edge import edge_client
from support.fake_turns import FakeArchive, FakeHost, FakeRuns, FakeTurns
from warmlane.api.app import create_app
from warmlane.api.auth import ApiKey, KeyRing
from warmlane.api.settings import EdgeSettings
from warmlane.host.view import ModelCard, Readiness
from warmlane.turns.conversations import ConversationArchive

NONE = cast(ConversationArchive, None)
HOST = FakeHost(cards=[ModelCard(name, 1_700_000_000, 4096) for name in ("a", "org/b", "c")])
ANTHROPIC = {"anthropic-version": "2023-06-01"}


async def get(path: str, host: FakeHost = HOST, **kwargs: Any) -> httpx.Response:
    async with edge_client(FakeTurns(), host=host) as client:
        return await client.get(path, **kwargs)


async def test_models_for_openai() -> None:
    body = (await get("/v1/models")).json()
    assert body["object"] == "list"
    assert [Model.model_validate(model).id for model in body["data"]] == ["a", "org/b", "c"]
    assert Model.model_validate((await get("/v1/models/org/b")).json()).id == "org/b"


async def test_models_for_anthropic() -> None:
    body = (await get("/v1/models", headers=ANTHROPIC)).json()
    assert [ModelInfo.model_validate(model).id for model in body["data"]] == ["a", "org/b", "c"]
    assert (body["has_more"], body["first_id"], body["last_id"]) == (False, "a", "c")
    assert ModelInfo.model_validate((await get("/v1/models/a", headers=ANTHROPIC)).json()).id == "a"


@pytest.mark.parametrize(
    ("query", "ids", "more"),
    [
        ("limit=2", ["a", "org/b"], True),
        ("limit=1000", ["a", "org/b", "c"], False),
        ("after_id=a&limit=1", ["org/b"], True),
        ("after_id=c", [], False),
        ("before_id=c&limit=1", ["org/b"], True),
        ("before_id=org/b", ["a"], False),
    ],
)
async def test_pages_of_models(query: str, ids: list[str], more: bool) -> None:
    body = (await get(f"/v1/models?{query}", headers=ANTHROPIC)).json()
    assert ([model["id"] for model in body["data"]], body["has_more"]) == (ids, more)


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "limit=%C2%B2", "after_id=z", "before_id="])
async def test_a_page_that_cannot_be(query: str) -> None:
    got = await get(f"/v1/models?{query}", headers=ANTHROPIC)
    assert (got.status_code, got.json()["error"]["type"]) == (400, "invalid_request_error")


async def test_a_model_by_its_alias() -> None:
    host = FakeHost(cards=HOST.cards, aliases={"claude-x": "org/b"})
    assert (await get("/v1/models/claude-x", host)).json()["id"] == "org/b"
    assert (await get("/v1/models/claude-x", host, headers=ANTHROPIC)).json()["id"] == "org/b"


async def test_an_unknown_model() -> None:
    openai, anthropic = await get("/v1/models/x"), await get("/v1/models/x", headers=ANTHROPIC)
    assert (openai.status_code, openai.json()["error"]["code"]) == (404, "model_not_found")
    assert (anthropic.status_code, anthropic.json()["error"]["type"]) == (404, "not_found_error")


async def test_probes() -> None:
    assert (await get("/health")).json() == {"status": "ok"}
    assert (await get("/")).status_code == 200
    ready = await get("/ready")
    assert (ready.status_code, ready.json()["waiting"], ready.json()["limit"]) == (200, 2, 16)
    draining = await get("/ready", FakeHost(ready=Readiness(False, "draining", 1, 0, 0, 8, None)))
    assert (draining.status_code, draining.json()["reason"]) == (503, "draining")
    assert draining.headers["retry-after"] == "1"
    async with edge_client(FakeTurns()) as client:
        assert [(await client.head(path)).status_code for path in ("/", "/health", "/ready")] == [200, 200, 200]


async def test_metrics_of_the_given_registry() -> None:
    registry = CollectorRegistry()
    Counter("turns", "Turns.", registry=registry).inc()
    settings = EdgeSettings(keys=KeyRing([ApiKey("k", "t"), ApiKey("root", "", admin=True)]))
    app = create_app(
        turns=FakeTurns(),
        archive=FakeArchive(),
        conversations=NONE,
        runs=FakeRuns(FakeArchive()),
        host=HOST,
        registry=registry,
        settings=settings,
    )
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        got = await client.get("/metrics", headers={"x-api-key": "root"})
        tenants = await client.get("/metrics", headers={"x-api-key": "k"})
        without = await client.get("/metrics")
    assert "turns_total 1.0" in got.text
    assert got.headers["content-type"].startswith("text/plain")
    assert (tenants.status_code, tenants.json()["error"]["code"]) == (403, "admin_only")
    assert without.status_code == 401
    assert (await get("/metrics")).status_code == 404


async def test_the_lifespan_is_entered_and_left() -> None:
    seen = []

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        seen.append("up")
        yield
        seen.append("down")

    app = create_app(
        turns=FakeTurns(),
        archive=FakeArchive(),
        conversations=NONE,
        runs=FakeRuns(FakeArchive()),
        host=HOST,
        lifespan=lifespan,
    )
    async with app.router.lifespan_context(app):
        assert seen == ["up"]
    assert seen == ["up", "down"]


async def test_a_model_that_was_not_loaded_yet_says_no_window() -> None:
    host = FakeHost(cards=[ModelCard("later", 1_700_000_000, None)])
    (openai,) = (await get("/v1/models", host)).json()["data"]
    (anthropic,) = (await get("/v1/models", host, headers=ANTHROPIC)).json()["data"]
    assert "context_window" not in Model.model_validate(openai).model_dump()
    assert ModelInfo.model_validate(anthropic).max_input_tokens is None
