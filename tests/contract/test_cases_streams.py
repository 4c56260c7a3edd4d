"""Faults other servers have had, tried on a live one: generation, streams and what comes in. See docs/cases.md."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from support.burst import Arrival, connect
from support.dialects import PATHS, body_of, check_envelope, deltas, streamed_text, told
from support.malformed import N_BODIES, malformed_bodies
from support.server import LiveServer

pytestmark = pytest.mark.live

DIALECTS = pytest.mark.parametrize("name", PATHS)
ENDLESS = "SLOW:1000 " + "x" * 600
STUCK = "SLEEP:600"
FREE_WITHIN_S = 1.0
WRITTEN = {
    "emoji": "ok 🌧!",
    "family": "a👨‍👩‍👧‍👦b",
    "hangul": "한글 각",
    "combining": "e\u0301 o\u0308\u0323",
}


@pytest.fixture
def client(paged_server: LiveServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=paged_server.base_url, timeout=60) as made:
        yield made


def text_of(client: httpx.Client, name: str, asked: str, *, stream: bool, **extra: Any) -> str:
    body = body_of(name, [("user", asked)], stream=stream, **extra)
    if not stream:
        return told(name, client.post(PATHS[name], json=body)).text
    with client.stream("POST", PATHS[name], json=body) as response:
        return streamed_text(name, response)


# text


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", ["messages", "chat"])
@pytest.mark.parametrize(
    ("said", "stop", "expected"),
    [
        ("alpha beta gamma delta", ["beta gamma"], "alpha "),
        ("alpha beta gam", ["beta gamma"], "alpha beta gam"),
        ("alpha bet", ["beta gamma", "bet a"], "alpha bet"),
        ("alpha beta gamma", ["gamma", "beta g"], "alpha "),
        ("aab aabaac", ["aabaac", "aabb"], "aab "),
        ("한글 🌧 끝", ["🌧 끝"], "한글 "),
    ],
)
def test_stop_strings_across_token_edges(
    client: httpx.Client, name: str, stream: bool, said: str, stop: list[str], expected: str
) -> None:
    field = "stop_sequences" if name == "messages" else "stop"
    assert text_of(client, name, f"EMIT:{said}", stream=stream, **{field: stop}) == expected


@DIALECTS
@pytest.mark.parametrize("written", WRITTEN.values(), ids=WRITTEN)
def test_text_cut_at_any_byte_is_whole_characters(client: httpx.Client, name: str, written: str) -> None:
    """A token is a byte here, so that every cut of `max_tokens` falls into every character once."""
    whole = written.encode()
    for cut in range(1, len(whole) + 1):
        expected = whole[:cut].decode(errors="ignore")
        for stream in (False, True):
            assert text_of(client, name, f"EMIT:{written}", stream=stream, max_tokens=cut) == expected


# leaving


@pytest.fixture
async def http(server: LiveServer) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=server.base_url, timeout=60) as made:
        yield made


async def counts(http: httpx.AsyncClient) -> tuple[int, int, int]:
    """Active, waiting, permits."""
    ready = (await http.get("/ready")).json()
    return ready["active"], ready["waiting"], ready["permits"]


async def until(http: httpx.AsyncClient, expected: tuple[int, int, int]) -> None:
    while await counts(http) != expected:
        pass


async def sent(server: LiveServer, body: dict[str, object], *, n: int) -> list[Arrival]:
    arrivals = [await connect(server.base_url, "/v1/responses", body) for _ in range(n)]
    for arrival in arrivals:
        arrival.send()
    return arrivals


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("asked", "queued"), [(ENDLESS, True), (STUCK, False), (ENDLESS, False)], ids=["queued", "prefill", "decode"]
)
async def test_a_client_that_leaves_frees_its_place_within_a_second(
    server: LiveServer, http: httpx.AsyncClient, asked: str, queued: bool, stream: bool
) -> None:
    kept = told("responses", await http.post("/v1/responses", json=body_of("responses", [("user", "hello")])))
    seats = (await http.get("/ready")).json()["capacity"]
    endless = body_of("responses", [("user", ENDLESS)], max_tokens=4000)
    running = await sent(server, endless, n=seats if queued else 0)
    await until(http, (len(running), 0, 0))
    body = body_of("responses", [("user", asked)], max_tokens=4000, stream=stream, previous_response_id=kept.id)
    (leaving,) = await sent(server, body, n=1)
    await until(http, (seats, 1, 0) if queued else (1, 0, 0))
    leaving.leave()
    left = time.monotonic()
    await until(http, (len(running), 0, 0))
    assert time.monotonic() - left < FREE_WITHIN_S
    for arrival in running:
        arrival.leave()
    await until(http, (0, 0, 0))
    if not queued or seats > 1:  # with one cache, those who ran have it now
        again = body_of("responses", [("user", "more")], previous_response_id=kept.id)
        assert (await http.post("/v1/responses", json=again)).headers["x-session-cache"] == "hit"


@pytest.mark.parametrize("asked", [STUCK, ENDLESS], ids=["prefill", "decode"])
async def test_a_response_left_half_way_is_not_stored(server: LiveServer, http: httpx.AsyncClient, asked: str) -> None:
    body = body_of("responses", [("user", asked)], max_tokens=4000, stream=True)
    async with http.stream("POST", "/v1/responses", json=body) as response:
        created = await anext(line async for line in response.aiter_lines() if line.startswith("data: "))
    await until(http, (0, 0, 0))
    response_id = created.split('"id":"', 1)[1].split('"', 1)[0]
    assert response_id.startswith("resp_")
    assert (await http.get(f"/v1/responses/{response_id}")).status_code == 404


# faults


@DIALECTS
@pytest.mark.parametrize("after", [0, 3], ids=["prefill", "decode"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_a_fault_is_one_turns_alone(client: httpx.Client, name: str, after: int, stream: bool) -> None:
    """A stream that runs beside it goes on, the server lives, and the next turn is served."""
    beside = body_of(name, [("user", "SLOW:2 EMIT:" + "b" * 40)], stream=True)
    with client.stream("POST", PATHS[name], json=beside) as bystander:
        pieces = deltas(name, bystander.iter_lines())
        heard = [next(pieces)]
        body = body_of(name, [("user", f"FAIL:{after} EMIT:abcdef")], stream=stream)
        failed = client.post(PATHS[name], json=body)
        heard += pieces
    assert "".join(heard) == "b" * 40
    if stream:
        assert failed.status_code == 200
        assert '"error"' in failed.text
        assert "".join(deltas(name, failed.text.splitlines())) == "abcdef"[:after]
        for end in ("response.completed", "message_stop", '"finish_reason":"stop"'):
            assert end not in failed.text
    else:
        assert failed.status_code == 500
        assert "script asked for a fault" in failed.json()["error"]["message"]
    assert client.get("/health").json() == {"status": "ok"}
    assert text_of(client, name, "hello", stream=stream) == "echo: hello"
    while client.get("/ready").json()["active"]:
        pass


@DIALECTS
@pytest.mark.parametrize("after", [0, 3])
def test_a_lack_of_memory_is_one_turns_alone_and_says_try_again(client: httpx.Client, name: str, after: int) -> None:
    whole = client.post(PATHS[name], json=body_of(name, [("user", f"OOM:{after} EMIT:abcdef")], stream=False))
    assert whole.status_code == 503
    assert int(whole.headers["retry-after"]) >= 1
    streamed = client.post(PATHS[name], json=body_of(name, [("user", f"OOM:{after} EMIT:abcdef")], stream=True))
    assert "lack of memory" in streamed.text
    assert streamed.text.count('"error"') >= 1
    for end in ("response.completed", "message_stop", '"finish_reason":"stop"'):
        assert end not in streamed.text
    assert client.get("/health").json() == {"status": "ok"}
    assert text_of(client, name, "hello", stream=False) == "echo: hello"


# what comes in


@DIALECTS
async def test_three_hundred_malformed_bodies_are_refused_as_such(paged_server: LiveServer, name: str) -> None:
    async with httpx.AsyncClient(base_url=paged_server.base_url, timeout=60) as client:
        n = 0
        for body in malformed_bodies(name):
            headers = {"content-type": "application/json", **body.headers}
            answer = await client.post(PATHS[name], content=body.content, headers=headers)
            check_envelope(name, answer.status_code, answer.headers, answer.content)
            n += 1
        assert n >= N_BODIES
        await until(client, (0, 0, 0))
        asked = [body_of(name, [("user", f"{i}")]) for i in range(4)]
        good = await asyncio.gather(*(client.post(PATHS[name], json=body) for body in asked))
    assert [told(name, answer).text for answer in good] == [f"echo: {i}" for i in range(4)]
