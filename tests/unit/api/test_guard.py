"""Keys, hosts, unknown routes and methods, and what happens to an exception."""

from __future__ import annotations

import httpx
import pytest
from starlette.types import Message

from support.edge import JSON, Connection, edge_app, edge_client, settle
from support.fake_turns import MODEL, FakeTurns
from warmlane.api.auth import ApiKey, KeyRing
from warmlane.api.guard import host_name
from warmlane.api.settings import EdgeSettings
from warmlane.errors import Unauthorized

CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}
MESSAGES = {**CHAT, "max_tokens": 8}
KEYS = KeyRing([ApiKey("key-a", "ann"), ApiKey("key-b", "bob"), ApiKey("key-a2", "ann")])


@pytest.mark.parametrize(
    ("headers", "tenant"),
    [
        ([(b"authorization", b"Bearer key-a")], "ann"),
        ([(b"authorization", b"bearer  key-b ")], "bob"),
        ([(b"x-api-key", b"key-a2")], "ann"),
        ([(b"x-api-key", b"wrong"), (b"authorization", b"Bearer key-b")], "bob"),
    ],
)
def test_a_key_names_its_tenant(headers: list[tuple[bytes, bytes]], tenant: str) -> None:
    assert KEYS.identify(headers).tenant == tenant


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [(b"x-api-key", b"")],
        [(b"x-api-key", b"key-")],
        [(b"authorization", b"key-a")],
        [(b"authorization", b"Basic key-a")],
        [(b"authorization", b"Bearer")],
        [(b"x-api-key", b"\xff\xfe")],
    ],
)
def test_any_other_key_is_refused(headers: list[tuple[bytes, bytes]]) -> None:
    with pytest.raises(Unauthorized):
        KEYS.identify(headers)


def test_without_keys_there_is_one_tenant_and_any_key_will_do() -> None:
    assert KeyRing().identify([]).tenant == ""
    assert KeyRing().identify([(b"authorization", b"Bearer anything")]).tenant == ""


async def test_a_refused_key_is_told_in_the_dialect_of_the_route() -> None:
    turns = FakeTurns()
    async with edge_client(turns, settings=EdgeSettings(keys=KEYS)) as client:
        openai = await client.post("/v1/chat/completions", json=CHAT)
        anthropic = await client.post("/v1/messages", json=MESSAGES, headers={"x-api-key": "wrong"})
        served = await client.post("/v1/chat/completions", json=CHAT, headers={"authorization": "Bearer key-b"})
        probes = [(await client.get(path)).status_code for path in ("/", "/health", "/ready")]
    assert (openai.status_code, openai.json()["error"]["code"]) == (401, "invalid_api_key")
    assert (anthropic.status_code, anthropic.json()["error"]["type"]) == (401, "authentication_error")
    assert (served.status_code, turns.last.tenant) == (200, "bob")
    assert probes == [200, 200, 200]
    assert len(turns.permits) == 1


async def test_tenant_and_salt_make_the_domain() -> None:
    turns = FakeTurns()
    async with edge_client(turns, settings=EdgeSettings(keys=KEYS)) as client:
        for body in (CHAT, {**CHAT, "cache_salt": "s"}):
            await client.post("/v1/chat/completions", json=body, headers={"x-api-key": "key-a"})
    assert [request.domain for request in turns.requests] == [turns.domain("ann", None), turns.domain("ann", "s")]


@pytest.mark.parametrize(
    ("header", "name"),
    [
        ("localhost:8080", "localhost"),
        ("LOCALHOST", "localhost"),
        ("localhost.", "localhost"),
        ("[::1]:80", "::1"),
        ("evil.example", "evil.example"),
        ("", ""),
    ],
)
def test_the_name_of_a_host_header(header: str, name: str) -> None:
    assert host_name(header) == name


@pytest.mark.parametrize("host", [b"evil.example", b"127.0.0.1.evil.example", b"localhost@evil", b"\xff"])
async def test_a_rebound_host_is_refused(host: bytes) -> None:
    turns = FakeTurns()
    async with edge_client(turns) as client:
        got = await client.post("/v1/messages", json=MESSAGES, headers={b"host": host})
    assert got.status_code == 403
    assert got.json()["error"]["type"] == "permission_error"
    assert turns.permits == []


async def test_any_host_may_be_allowed() -> None:
    async with edge_client(FakeTurns(), settings=EdgeSettings(allowed_hosts=None)) as client:
        got = await client.post("/v1/messages", json=MESSAGES, headers={"host": "my.server"})
    assert got.status_code == 200


async def test_there_is_no_cors() -> None:
    async with edge_client(FakeTurns()) as client:
        origin = {"origin": "https://page.example", "access-control-request-method": "POST"}
        preflight = await client.options("/v1/responses", headers=origin)
        simple = await client.post("/v1/chat/completions", content=b"{}", headers={"content-type": "text/plain"})
    assert preflight.status_code == 405
    assert not [name for name in preflight.headers if name.startswith("access-control")]
    assert simple.status_code == 415


@pytest.mark.parametrize(
    ("method", "path", "status", "allow"),
    [
        ("GET", "/nope", 404, None),
        ("POST", "/v1/responses/", 404, None),
        ("GET", "/v1/messages/batches", 404, None),
        ("GET", "/v1/responses", 405, "POST"),
        ("PUT", "/v1/messages", 405, "POST"),
        ("DELETE", "/v1/messages/count_tokens", 405, "POST"),
        ("POST", "/v1/models", 405, "GET, HEAD"),
        ("POST", "/health", 405, "GET, HEAD"),
        ("PATCH", "/", 405, "GET, HEAD"),
    ],
)
async def test_unknown_routes_and_methods(method: str, path: str, status: int, allow: str | None) -> None:
    async with edge_client(FakeTurns()) as client:
        got = await client.request(method, path)
    assert (got.status_code, got.headers.get("allow")) == (status, allow)
    _assert_envelope(got, anthropic=path.startswith("/v1/messages"))


async def test_common_headers() -> None:
    async with edge_client(FakeTurns()) as client:
        openai = await client.post("/v1/chat/completions", json=CHAT)
        anthropic = await client.post("/v1/messages", json={})
    assert openai.headers["x-request-id"].startswith("req_")
    assert openai.headers["openai-version"] == "2020-10-01"
    assert openai.headers["openai-processing-ms"] == "0"
    assert anthropic.headers["request-id"] == anthropic.headers["x-request-id"] == anthropic.json()["request_id"]


@pytest.mark.parametrize("where", ["refusal", "start_error"])
async def test_an_exception_is_a_500_that_tells_nothing(where: str) -> None:
    turns = FakeTurns(**{where: ZeroDivisionError("secret")})  # type: ignore[arg-type]
    async with edge_client(turns) as client:
        got = await client.post("/v1/chat/completions", json=CHAT)
    assert got.status_code == 500
    _assert_envelope(got, anthropic=False)
    assert "secret" not in got.text
    assert "ZeroDivision" not in got.text
    assert turns.open_permits == 0


async def test_a_websocket_elsewhere_is_refused_at_once() -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    app = edge_app(FakeTurns())
    scope = {"type": "websocket", "path": "/v1/messages", "headers": [], "extensions": {"websocket.http.response": {}}}
    await app(scope, receive, send)
    await app({**scope, "extensions": {}}, receive, send)
    assert sent[0]["status"] == 426
    assert sent[-1]["type"] == "websocket.close"


async def test_a_client_that_leaves_before_its_body_is_whole() -> None:
    turns = FakeTurns()
    connection = Connection(edge_app(turns), "/v1/messages", None)
    connection.send(b'{"model"', more=True)
    await settle()
    connection.disconnect()
    await connection.task
    assert (turns.permits, connection.sent) == ([], [])


def _assert_envelope(got: httpx.Response, *, anthropic: bool) -> None:
    body = got.json()
    if anthropic:
        assert body["type"] == "error"
        assert set(body["error"]) == {"type", "message"}
    else:
        assert set(body["error"]) == {"message", "type", "param", "code"}
    assert JSON["content-type"] == got.headers["content-type"]
