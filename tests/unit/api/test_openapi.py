"""GET /openapi.json: what it says is what there is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import jsonschema
import pytest
from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from starlette.routing import Route

from support.edge import edge_app, edge_client, sse_events
from support.fake_turns import MODEL, FakeTurns, rich_turn, text_turn
from warmlane.api.auth import ApiKey, KeyRing
from warmlane.api.openapi.catalogue import METRICS, OPERATIONS
from warmlane.api.settings import EdgeSettings

Json = dict[str, object]


async def read(**kwargs: object) -> Json:
    answer = await edge_client(FakeTurns(), **kwargs).get("/openapi.json")
    assert answer.status_code == 200
    body: Json = answer.json()
    return body


def routes(app: object) -> Iterator[tuple[str, str]]:
    assert isinstance(app, FastAPI)
    for route in app.router.routes:
        for method in getattr(route, "methods", None) or ():
            if method != "HEAD":
                yield method.lower(), re.sub(r":path\}", "}", getattr(route, "path", ""))


def test_every_route_is_told_and_nothing_else() -> None:
    assert sorted(routes(edge_app(FakeTurns()))) == sorted((o.method, o.path) for o in OPERATIONS)
    with_metrics = edge_app(FakeTurns(), registry=CollectorRegistry())
    assert (METRICS.method, METRICS.path) in routes(with_metrics)
    assert len({o.name for o in OPERATIONS}) == len(OPERATIONS)
    assert any(isinstance(route, Route) for route in with_metrics.router.routes)  # type: ignore[attr-defined]


async def test_every_reference_leads_somewhere() -> None:
    told = await read()
    schemas = told["components"]["schemas"]  # type: ignore[index]
    references = set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(told)))
    assert references <= schemas.keys()
    for schema in schemas.values():
        jsonschema.Draft202012Validator.check_schema(schema)


async def test_a_key_is_asked_for_where_there_are_keys() -> None:
    assert {} in (await read())["security"]  # type: ignore[operator]
    settings = EdgeSettings(keys=KeyRing([ApiKey("sk-1", "ann")]))
    told = await read(settings=settings)
    assert told["security"] == [{"bearer": []}, {"key": []}]
    assert told["paths"]["/health"]["get"]["security"] == [{}]  # type: ignore[index]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/responses", {"model": MODEL, "input": "hi"}),
        ("/v1/responses", {"model": MODEL, "input": 3}),
        ("/v1/responses/input_tokens", {"model": MODEL, "input": [{"role": "user", "content": "hi"}]}),
        ("/v1/messages", {"model": MODEL, "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}),
        ("/v1/messages", {"model": MODEL, "messages": []}),
        ("/v1/chat/completions", {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}),
        ("/v1/chat/completions", {"model": "none", "messages": [{"role": "user", "content": "hi"}]}),
    ],
)
async def test_what_is_sent_and_answered_is_as_declared(path: str, body: Json) -> None:
    told = await read()
    operation = told["paths"][path]["post"]  # type: ignore[index]
    got = await edge_client(FakeTurns(text_turn("Hello"))).post(path, json=body)
    answered = operation["responses"][str(got.status_code)]["content"]["application/json"]["schema"]
    valid(got.json(), answered, told)
    asked = operation["requestBody"]["content"]["application/json"]["schema"]
    if got.status_code == 200:
        valid(body, asked, told)


def valid(value: object, schema: Json, told: Json) -> None:
    jsonschema.validate(value, {**schema, "components": told["components"]}, jsonschema.Draft202012Validator)


@pytest.mark.parametrize("path", sorted({o.path for o in (*OPERATIONS, METRICS)}))
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "QUERY"])
async def test_any_other_method_is_told_which_there_are(path: str, method: str) -> None:
    declared = {o.method.upper() for o in (*OPERATIONS, METRICS) if o.path == path}
    declared |= {"HEAD"} if "GET" in declared else set()
    got = await edge_client(FakeTurns(), registry=CollectorRegistry()).request(method, re.sub(r"\{\w+\}", "x1", path))
    if method in declared:
        assert got.status_code != 405
    else:
        assert (got.status_code, got.headers.get("allow")) == (405, ", ".join(sorted(declared)))


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/responses", {"input": "hi"}),
        ("/v1/messages", {"max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]}),
    ],
)
async def test_every_event_of_a_stream_is_as_declared(path: str, body: Json) -> None:
    told = await read()
    answers = told["paths"][path]["post"]["responses"]["200"]["content"]  # type: ignore[index]
    data = answers["text/event-stream"]["schema"]["properties"]["data"]
    schema = data.get("else", data)["contentSchema"]
    got = await edge_client(FakeTurns(rich_turn())).post(path, json={"model": MODEL, "stream": True, **body})
    events = sse_events(got.content, named=path != "/v1/chat/completions")
    assert len(events) > 5
    for event in events:
        valid(event, schema, told)
