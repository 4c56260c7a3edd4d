"""A burst of arrivals against a live server: exactly the budget is admitted, the rest is refused at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import anthropic.types.shared as anthropic_errors
import httpx
import pytest

from support.burst import Answer, burst, connect
from support.server import LiveServer, live_server

pytestmark = pytest.mark.live
MODEL = "simulated"
ARRIVALS = 200
MAX_WAITING = 16
LONG = "SLOW:1000 " + "x" * 600
"""Ten minutes of output: no turn ends within a test."""

REFUSED = "warmlane_admission_refusals_total"


@dataclass(frozen=True)
class Dialect:
    path: str
    body: dict[str, object]

    def asking(self, text: str, *, stream: bool) -> dict[str, object]:
        field = "input" if self.path == "/v1/responses" else "messages"
        said: object = text if field == "input" else [{"role": "user", "content": text}]
        return {"model": MODEL, field: said, "stream": stream, **self.body}


DIALECTS = {
    "responses": Dialect("/v1/responses", {}),
    "messages": Dialect("/v1/messages", {"max_tokens": 2000}),
    "chat": Dialect("/v1/chat/completions", {}),
}


@dataclass(frozen=True)
class Loaded:
    """A server with a small budget: `capacity` seats."""

    server: LiveServer
    capacity: int

    @property
    def url(self) -> str:
        return self.server.base_url

    @property
    def budget(self) -> int:
        return self.capacity + MAX_WAITING


@pytest.fixture(scope="module", params=[4, 1], ids=["paged", "flat"])
def loaded(request: pytest.FixtureRequest) -> Iterator[Loaded]:
    flags = ("--capacity", "4", "--max-waiting", str(MAX_WAITING), *(("--flat",) if request.param == 1 else ()))
    with live_server("--engine", "simulated", *flags) as server:
        yield Loaded(server, request.param)


@pytest.fixture
async def client(loaded: Loaded) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=loaded.url, timeout=60) as made:
        yield made


async def counts(client: httpx.AsyncClient) -> tuple[int, int, int]:
    """Active, waiting, permits."""
    ready = (await client.get("/ready")).json()
    return ready["active"], ready["waiting"], ready["permits"]


async def until(client: httpx.AsyncClient, expected: tuple[int, int, int]) -> None:
    while await counts(client) != expected:
        pass


async def metrics(client: httpx.AsyncClient) -> dict[str, float]:
    """Every sample, its labels left out and summed over."""
    sums: dict[str, float] = {}
    for line in (await client.get("/metrics")).text.splitlines():
        if not line.startswith("#"):
            name, value = line.split("{")[0].split(" ")[0], float(line.rsplit(" ", 1)[1])
            sums[name] = sums.get(name, 0.0) + value
    return sums


def check_refusal(answer: Answer, name: str) -> None:
    assert answer.status == 429
    assert 1 <= int(answer.headers["retry-after"]) <= 60
    assert answer.headers["content-type"] == "application/json"
    body = json.loads(answer.body)
    if name == "messages":
        anthropic_errors.ErrorResponse.model_validate(body)
        assert (body["type"], body["error"]["type"]) == ("error", "rate_limit_error")
        assert body["request_id"] == answer.headers["request-id"]
    else:
        assert (body["error"]["type"], body["error"]["code"]) == ("rate_limit_error", "queue_full")
        assert body["error"].keys() == {"message", "type", "param", "code"}
    assert f"limit {MAX_WAITING}" in body["error"]["message"]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", DIALECTS)
async def test_a_burst_is_admitted_to_the_budget_and_refused_beyond(
    loaded: Loaded, client: httpx.AsyncClient, name: str, stream: bool
) -> None:
    dialect = DIALECTS[name]
    before = await metrics(client)
    async with burst(loaded.url, dialect.path, dialect.asking(LONG, stream=stream), n=ARRIVALS) as answers:
        left, refusals = set(answers), list[Answer]()
        while len(refusals) < ARRIVALS - loaded.budget:
            done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
            refusals += [answer for task in done if (answer := task.result()).status != 200]
        await until(client, (loaded.capacity, MAX_WAITING, 0))
        during = await metrics(client)
        assert (await client.get("/ready")).status_code == 503
    for answer in refusals:
        check_refusal(answer, name)
    counted = during[REFUSED] - before.get(REFUSED, 0)
    assert counted == len(refusals) == ARRIVALS - loaded.budget
    if name != "messages":
        took_ms = sorted(int(answer.headers["openai-processing-ms"]) for answer in refusals)
        print(f"{len(refusals)} refusals, server side p99 {took_ms[int(len(took_ms) * 0.99)]} ms")
    await until(client, (0, 0, 0))
    after = await metrics(client)
    for gauge in ("lane_active", "lane_waiting", "lane_permits", "sessions_disposals_owed"):
        assert after[f"warmlane_{gauge}"] == 0
    assert after["warmlane_sessions_warm"] <= before["warmlane_sessions_warm"]
    quick = await client.post(dialect.path, json=dialect.asking("hello", stream=False))
    assert quick.status_code == 200


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_client_that_leaves_while_it_waits_frees_its_unit_and_evicts_nothing(
    loaded: Loaded, client: httpx.AsyncClient, stream: bool
) -> None:
    def chained(text: str, previous: str) -> dict[str, object]:
        return DIALECTS["responses"].asking(text, stream=stream) | {"previous_response_id": previous}

    warm = [
        (await client.post("/v1/responses", json={"model": MODEL, "input": "hello"})).json()["id"]
        for _ in range(loaded.capacity)
    ]
    running = [await connect(loaded.url, "/v1/responses", chained(LONG, previous)) for previous in warm]
    for arrival in running:
        arrival.send()
    await until(client, (loaded.capacity, 0, 0))
    before = await metrics(client)
    waiting = await connect(loaded.url, "/v1/responses", chained("late", warm[0]))
    waiting.send()
    await until(client, (loaded.capacity, 1, 0))
    waiting.leave()
    await until(client, (loaded.capacity, 0, 0))
    after = await metrics(client)
    for count in ("sessions_evictions_total", "sessions_hits_total", "sessions_misses_total"):
        assert after[f"warmlane_{count}"] == before[f"warmlane_{count}"]
    for arrival in running:
        arrival.leave()
    await until(client, (0, 0, 0))
    body = {"model": MODEL, "input": "more", "previous_response_id": warm[0]}
    assert (await client.post("/v1/responses", json=body)).headers["x-session-cache"] == "hit"
