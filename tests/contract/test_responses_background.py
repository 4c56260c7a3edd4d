"""The official openai package against a live server: background responses."""

from __future__ import annotations

import time
from pathlib import Path

import openai
import pytest

from support.server import LiveServer, live_server

pytestmark = pytest.mark.live
MODEL = "simulated"
SLOW = "SLOW:20 EMIT:" + "word " * 40


@pytest.fixture
def client(server: LiveServer) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.base_url}/v1", api_key="x", max_retries=0)


def ended(client: openai.OpenAI, response_id: str) -> str:
    deadline = time.monotonic() + 60
    while (status := client.responses.retrieve(response_id).status) in ("queued", "in_progress"):
        assert time.monotonic() < deadline
    return str(status)


def test_a_background_response_is_fetched_and_continued(client: openai.OpenAI) -> None:
    queued = client.responses.create(model=MODEL, input="hello", background=True)
    assert queued.status == "queued"
    assert ended(client, queued.id) == "completed"
    done = client.responses.retrieve(queued.id)
    assert (done.output_text, done.background) == ("echo: hello", True)
    more = client.responses.create(model=MODEL, input="more", previous_response_id=queued.id)
    assert more.output_text == "echo: more"


def test_a_dropped_stream_is_taken_up_where_it_was_left(client: openai.OpenAI) -> None:
    with client.responses.create(model=MODEL, input=SLOW, background=True, stream=True) as stream:
        first = next(iter(stream))
        assert first.type == "response.created"
        name = first.response.id
    tails = []
    for _ in range(2):
        with client.responses.retrieve(name, stream=True, starting_after=2) as again:
            tails.append([event.model_dump() for event in again])
    assert tails[0] == tails[1]
    assert [event["sequence_number"] for event in tails[0]] == list(range(3, 3 + len(tails[0])))
    assert tails[0][-1]["type"] == "response.completed"


def test_cancelling_frees_the_seat_and_is_idempotent(client: openai.OpenAI) -> None:
    queued = client.responses.create(model=MODEL, input="SLOW:1000 EMIT:" + "x" * 300, background=True)
    assert client.responses.cancel(queued.id).status == "cancelled"
    assert client.responses.cancel(queued.id).status == "cancelled"
    assert client.responses.create(model=MODEL, input="hello").output_text == "echo: hello"


def test_a_server_that_is_killed_leaves_a_failed_response(tmp_path: Path) -> None:
    store = tmp_path / "responses.db"
    with live_server("--engine", "simulated", store=store) as server:
        client = openai.OpenAI(base_url=f"{server.base_url}/v1", api_key="x", max_retries=0)
        queued = client.responses.create(model=MODEL, input="SLOW:1000 EMIT:" + "x" * 300, background=True)
        server.process.kill()
        server.process.wait()
    with live_server("--engine", "simulated", store=store) as server:
        client = openai.OpenAI(base_url=f"{server.base_url}/v1", api_key="x", max_retries=0)
        lost = client.responses.retrieve(queued.id)
        assert lost.status == "failed"
        assert lost.error is not None
