"""What a body may be: whatever comes in, the answer is a 4xx in the dialect of the route, and no permit is left."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.edge import JSON, Connection, edge_app, edge_client
from support.fake_turns import MODEL, FakeTurns
from warmlane.api.jsonio import MAX_NESTING, decode_object, encode
from warmlane.api.settings import EdgeSettings
from warmlane.errors import InvalidRequest

PATHS = ["/v1/responses", "/v1/messages", "/v1/chat/completions", "/v1/messages/count_tokens"]
GOOD: dict[str, dict[str, Any]] = {
    "/v1/responses": {"model": MODEL, "input": "hi"},
    "/v1/messages": {"model": MODEL, "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]},
    "/v1/chat/completions": {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]},
    "/v1/messages/count_tokens": {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]},
}
MALFORMED = [
    b"",
    b" ",
    b"{",
    b"[]",
    b'"text"',
    b"null",
    b"1",
    b'{"model": NaN}',
    b'{"model": "tiny", "temperature": Infinity}',
    b'{"model": "tiny", "temperature": 1e999}',
    b'{"model": "\xff\xfe"}',
    b'{"model": "\xed\xa0\x80"}',
    b"\xef\xbb\xbf{}",
    b'{"model": "tiny"} x',
    b"[" * 100_000,
    b'{"model":' + b'{"a":' * 50_000,
    b"1" * 10_000,
    gzip.compress(b"{}")[:-4],
]


def assert_refused(got: httpx.Response, path: str, *, status: int | None = None) -> dict[str, Any]:
    assert 400 <= got.status_code < 500, got.text
    assert status is None or got.status_code == status, got.text
    body: dict[str, Any] = got.json()
    if path.startswith("/v1/messages"):
        assert body["type"] == "error"
        assert isinstance(body["error"]["message"], str)
        assert body["request_id"] == got.headers["request-id"]
    else:
        assert set(body["error"]) == {"message", "type", "param", "code"}
    error: dict[str, Any] = body["error"]
    return error


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("body", MALFORMED, ids=range(len(MALFORMED)))
async def test_malformed_json(path: str, body: bytes) -> None:
    turns = FakeTurns()
    async with edge_client(turns) as client:
        assert_refused(await client.post(path, content=body, headers=JSON), path, status=400)
    assert turns.permits == []


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"content-type": "text/plain"},
        {"content-type": "application/x-www-form-urlencoded"},
        {"content-type": "application/json; charset=latin-1"},
        {"content-type": "application/json", "content-encoding": "gzip"},
        {"content-type": "application/json", "content-encoding": "zstd"},
    ],
)
async def test_media_types_and_encodings(path: str, headers: dict[str, str]) -> None:
    async with edge_client(FakeTurns()) as client:
        got = await client.post(path, content=json.dumps(GOOD[path]).encode(), headers=headers)
    assert_refused(got, path, status=415)


@pytest.mark.parametrize("media", ["application/json; charset=UTF-8", "Application/JSON", "application/problem+json"])
async def test_json_by_any_of_its_names(media: str) -> None:
    async with edge_client(FakeTurns()) as client:
        got = await client.post(PATHS[0], content=json.dumps(GOOD[PATHS[0]]).encode(), headers={"content-type": media})
    assert got.status_code == 200


@pytest.mark.parametrize("path", PATHS)
async def test_a_body_over_the_limit(path: str) -> None:
    async def chunked() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b" " * 400

    turns = FakeTurns()
    async with edge_client(turns, settings=EdgeSettings(max_body_bytes=1000)) as client:
        declared = await client.post(path, content=b" " * 1001, headers=JSON)
        streamed = await client.post(path, content=chunked(), headers=JSON)
    for got in (declared, streamed):
        error = assert_refused(got, path, status=413)
        assert error["type"] in ("request_too_large", "invalid_request_error")
    assert turns.permits == []


@pytest.mark.parametrize(("declared", "status"), [("5", 413), ("2000", 413), ("-1", 413), ("x", 413)])
async def test_a_lying_content_length(declared: str, status: int) -> None:
    app = edge_app(FakeTurns(), settings=EdgeSettings(max_body_bytes=1000))
    connection = Connection(app, PATHS[0], b" " * 1500, headers={"content-length": declared})
    await connection.task
    assert connection.status == status


async def test_expecting_clients_are_told_before_they_send() -> None:
    app = edge_app(FakeTurns(), settings=EdgeSettings(max_body_bytes=1000))
    connection = Connection(app, PATHS[0], None, headers={"content-length": "2000", "expect": "100-continue"})
    await connection.task
    assert connection.status == 413


async def test_an_endless_body_is_cut_off() -> None:
    app = edge_app(FakeTurns(), settings=EdgeSettings(max_body_bytes=1000))
    connection = Connection(app, PATHS[0], None)
    for _ in range(100):
        connection.send(b" " * 500, more=True)
    await connection.task
    assert connection.status == 413
    assert connection.inbox.qsize() > 80


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("model", [None, 5, "", ["tiny"], "x" * 300])
async def test_a_model_that_is_no_model(path: str, model: object) -> None:
    turns = FakeTurns()
    async with edge_client(turns) as client:
        got = await client.post(path, json={**GOOD[path], "model": model})
    assert "model" in assert_refused(got, path, status=400)["message"]
    assert turns.permits == []


@pytest.mark.parametrize("path", PATHS)
async def test_an_unknown_model(path: str) -> None:
    async with edge_client(FakeTurns()) as client:
        got = await client.post(path, json={**GOOD[path], "model": "gpt-9"})
    error = assert_refused(got, path, status=404)
    assert MODEL in error["message"]
    assert error.get("code", "model_not_found") == "model_not_found"


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.sampled_from(["user", "assistant", "text", "input_text", "message", "function_call", "image", "auto"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["type", "role", "content", "text", "name", "format", "thinking"]) | st.text(),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
FIELDS = [
    "input", "messages", "system", "instructions", "stream", "max_tokens", "max_output_tokens", "temperature", "top_p",
    "top_k", "stop", "stop_sequences", "tools", "tool_choice", "text", "include", "metadata", "store", "thinking", "n",
    "response_format", "logprobs", "seed", "cache_salt", "previous_response_id", "prompt_cache_key", "reasoning",
    "stream_options", "output_config", "user", "truncation", "unknown_field",
]  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
@settings(max_examples=120, deadline=None)
@given(changes=st.dictionaries(st.sampled_from(FIELDS), JSON_VALUES, min_size=1, max_size=3))
def test_no_body_makes_a_500(path: str, changes: dict[str, Any]) -> None:
    async def check() -> None:
        turns = FakeTurns()
        async with edge_client(turns) as client:
            body = json.dumps({**GOOD[path], **changes}).encode()
            got = await client.post(path, content=body, headers=JSON)
        if got.status_code != 200:
            assert_refused(got, path, status=400)
        await turns.settle()
        assert turns.open_permits == 0

    asyncio.run(check())


@pytest.mark.parametrize("path", PATHS)
@settings(max_examples=100, deadline=None)
@given(body=st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_no_bytes_make_a_500(path: str, body: bytes) -> None:
    async def check() -> None:
        turns = FakeTurns()
        async with edge_client(turns) as client:
            assert_refused(await client.post(path, content=body, headers=JSON), path, status=400)
        assert turns.permits == []

    asyncio.run(check())


def test_half_a_surrogate_pair_is_mended() -> None:
    assert decode_object(rb'{"a": "x\ud83d"}') == {"a": "x\ufffd"}
    assert decode_object(rb'{"a": "\ude00y"}') == {"a": "\ufffdy"}
    assert decode_object(rb'{"a": "\ud83d\ude00"}') == {"a": "\U0001f600"}
    assert decode_object(rb'{"a": "\\ud83d"}') == {"a": "\\ud83d"}
    assert decode_object(rb'{"a": "\\\uD83D"}') == {"a": "\\\ufffd"}


def test_of_a_repeated_key_the_last_value_counts() -> None:
    assert decode_object(b'{"a": 1, "a": 2}') == {"a": 2}


def nested(levels: int) -> bytes:
    """An object of so many levels, and much beside it."""
    inner = levels - 1
    return b'{"wide": [' + b"{}," * 1000 + b'[]], "deep": ' + b"[" * inner + b"]" * inner + b"}"


def test_nesting_has_a_limit() -> None:
    assert "deep" in decode_object(nested(MAX_NESTING))
    for levels in (MAX_NESTING + 1, 940, 960, 100_000):
        with pytest.raises(InvalidRequest, match="nested too deeply; at most 200 levels"):
            decode_object(nested(levels))


@pytest.mark.parametrize("levels", [180, 945, 955, 965])
async def test_deep_arguments_and_skipped_tools_make_no_500(levels: int) -> None:
    deep = '{"a":' * levels + "0" + "}" * levels
    call = f'{{"id": "c", "type": "function", "function": {{"name": "f", "arguments": {deep}}}}}'
    said = f'"messages": [{{"role": "assistant", "tool_calls": [{call}]}}, {{"role": "user", "content": "x"}}]'
    skipped = f'"input": "hi", "tools": [{{"type": "web_search", "filters": {deep}}}]'
    async with edge_client(FakeTurns()) as client:
        for path, fields in ((PATHS[2], said), (PATHS[0], skipped), (PATHS[0], skipped + ', "stream": true')):
            got = await client.post(path, content=f'{{"model": "{MODEL}", {fields}}}', headers=JSON)
            assert got.status_code == (200 if levels < MAX_NESTING else 400), got.text


def test_json_is_not_guessed_at() -> None:
    with pytest.raises(InvalidRequest):
        decode_object(b'{"a": 1,}')


def test_output_is_one_line_to_every_parser() -> None:
    data = encode({"text": "a\u2028b\u2029c\x85d\ne\r\x0b\x1cé"})
    assert len(data.decode().splitlines()) == 1
    assert json.loads(data) == {"text": "a\u2028b\u2029c\x85d\ne\r\x0b\x1cé"}
    assert "é".encode() in data


def test_output_survives_half_a_pair() -> None:
    assert json.loads(encode({"text": "x\ud83d"}))["text"] == "x\ud83d"
