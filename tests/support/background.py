"""An edge for background responses, over a scripted spine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from openai.types.responses import Response

from support.edge import edge_client, sse_events
from support.fake_turns import MODEL, FakeArchive, FakeRuns, FakeTurns, Step
from support.manual_clock import ManualClock
from warmlane.conversation.events import Finished
from warmlane.turns.archive import Archived

PATH = "/v1/responses"
BODY = {"model": MODEL, "input": "hi", "background": True}


class Server:
    """An edge whose turns store their rows as the spine does, and a client of it."""

    def __init__(
        self, script: list[Step], *, archive: FakeArchive | None = None, runs: type[FakeRuns] = FakeRuns
    ) -> None:
        self.archive = archive or FakeArchive()
        self.runs = runs(self.archive)
        self.clock = ManualClock()
        self.turns = FakeTurns()
        end = script[-1]
        stored: list[Step] = [self._storing(end)] if isinstance(end, Finished) else []
        self.turns.script = [*script[:-1], *stored, end]
        self.client = edge_client(self.turns, archive=self.archive, runs=self.runs, clock=self.clock)

    def _storing(self, end: Finished) -> Callable[[], Any]:
        async def store() -> None:
            request = self.turns.last
            key = (request.tenant, request.response_id)
            self.archive.rows[key] = Archived(request.response_id, request.echo, end.outcome, 0.0, request.input)

        return store

    async def begin(self, **fields: Any) -> dict[str, Any]:
        got = await self.client.post(PATH, json={**BODY, **fields})
        assert got.status_code == 200, got.text
        body: dict[str, Any] = got.json()
        Response.model_validate(body)
        return body

    async def get(self, response_id: str) -> dict[str, Any]:
        body: dict[str, Any] = (await self.client.get(f"{PATH}/{response_id}")).json()
        Response.model_validate(body)
        return body

    async def follow(self, response_id: str, after: int | None = None) -> list[dict[str, Any]]:
        query = "" if after is None else f"&starting_after={after}"
        got = await self.client.get(f"{PATH}/{response_id}?stream=true{query}")
        assert got.headers["content-type"].startswith("text/event-stream")
        return sse_events(got.content, named=True) if got.content else []
