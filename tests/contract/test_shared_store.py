"""Two servers on one store: what one of them begins the other follows and cancels."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from support.postgres import PostgresServer
from support.server import LiveServer, live_server

pytestmark = [pytest.mark.live, pytest.mark.timeout(180)]
MODEL = "simulated"


def client(server: LiveServer) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.base_url}/v1", api_key="x", max_retries=0)


@pytest.fixture(params=["file", pytest.param("postgres", marks=pytest.mark.postgres)])
def two(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[openai.OpenAI, openai.OpenAI]]:
    store: Path | str = tmp_path / "responses.db"
    if request.param == "postgres":
        postgres: PostgresServer = request.getfixturevalue("postgres")
        store = postgres.create(f"two{abs(hash(request.node.name)) % 10**8}")
    flags = ("--engine", "simulated")
    with live_server(*flags, store=store) as one, live_server(*flags, store=store) as other:
        yield client(one), client(other)


def test_a_run_is_followed_on_the_other_server_while_it_runs(two: tuple[openai.OpenAI, openai.OpenAI]) -> None:
    one, other = two
    queued = one.responses.create(model=MODEL, input="SLOW:60 EMIT:" + "word " * 20, background=True)
    with other.responses.retrieve(queued.id, stream=True) as stream:
        first = next(iter(stream))
        running = one.responses.retrieve(queued.id).status
        events = [first, *stream]
    assert running in ("queued", "in_progress")
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[-1].type == "response.completed"
    with one.responses.retrieve(queued.id, stream=True) as stream:
        assert [event.model_dump() for event in stream] == [event.model_dump() for event in events]
    with other.responses.retrieve(queued.id, stream=True, starting_after=4) as stream:
        assert [event.sequence_number for event in stream] == list(range(5, len(events)))


def test_a_run_is_cancelled_by_the_other_server(two: tuple[openai.OpenAI, openai.OpenAI]) -> None:
    one, other = two
    queued = one.responses.create(model=MODEL, input="SLOW:1000 EMIT:" + "x" * 300, background=True)
    assert other.responses.cancel(queued.id).status == "cancelled"
    assert other.responses.cancel(queued.id).status == "cancelled"
    assert one.responses.retrieve(queued.id).status == "cancelled"
    with other.responses.retrieve(queued.id, stream=True) as stream:
        assert [*stream][-1].type == "response.failed"


def test_a_run_that_has_ended_stays_as_it_is(two: tuple[openai.OpenAI, openai.OpenAI]) -> None:
    one, other = two
    queued = one.responses.create(model=MODEL, input="hello", background=True)
    with other.responses.retrieve(queued.id, stream=True) as stream:
        assert [*stream][-1].type == "response.completed"
    assert other.responses.cancel(queued.id).status == "completed"
