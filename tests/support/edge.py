"""The edge under test: a client of the ASGI app, a connection driven by hand, and strict readers of streams."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any, cast, get_args

import httpx
from anthropic.types import RawMessageStreamEvent
from openai.types.chat import ChatCompletionChunk
from openai.types.responses import ResponseStreamEvent
from prometheus_client import CollectorRegistry
from pydantic import BaseModel
from starlette.types import ASGIApp, Message

from support.fake_turns import FakeArchive, FakeHost, FakeRuns, FakeTurns
from support.manual_clock import ManualClock
from warmlane.api.app import assemble
from warmlane.api.settings import Edge, EdgeSettings
from warmlane.api.signing import KEY_BYTES, Signer
from warmlane.turns.conversations import ConversationArchive
from warmlane.turns.runs import RunArchive

UNIX_S = 1_750_000_000
JSON = {"content-type": "application/json"}


def edge_app(
    turns: FakeTurns,
    *,
    host: FakeHost | None = None,
    archive: FakeArchive | None = None,
    runs: RunArchive | None = None,
    conversations: ConversationArchive | None = None,
    settings: EdgeSettings | None = None,
    clock: ManualClock | None = None,
    registry: CollectorRegistry | None = None,
) -> ASGIApp:
    serial = iter(range(1, 1_000_000))
    archive = archive or FakeArchive()
    edge = Edge(
        turns=turns,
        archive=archive,
        runs=runs or FakeRuns(archive),
        conversations=cast(ConversationArchive, conversations),
        host=host or FakeHost(),
        settings=settings or EdgeSettings(),
        clock=clock or ManualClock(),
        signer=Signer(bytes(KEY_BYTES)),
        new_token=lambda: f"{next(serial):048x}",
        unix_s=lambda: UNIX_S,
    )
    return assemble(edge, registry=registry)


def edge_client(turns: FakeTurns, **kwargs: Any) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=edge_app(turns, **kwargs))
    return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080")


class Connection:
    """One request on an ASGI app, with the client's side in the test's hands."""

    def __init__(
        self,
        app: ASGIApp,
        path: str,
        body: bytes | dict[str, Any] | None,
        *,
        headers: dict[str, str] | None = None,
        method: str = "POST",
        query: str = "",
    ) -> None:
        """Sends `body` whole; None sends nothing yet."""
        self.sent: list[Message] = []
        self.inbox: asyncio.Queue[Message] = asyncio.Queue()
        self.writes_fail = False
        self._reading = asyncio.Event()
        self._reading.set()
        if body is not None:
            self.send(body if isinstance(body, bytes) else json.dumps(body).encode())
        names = {"host": "127.0.0.1", **JSON, **(headers or {})}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(name.encode(), value.encode()) for name, value in names.items()],
            "client": ("127.0.0.1", 5000),
            "server": ("127.0.0.1", 8080),
        }
        self.task = asyncio.ensure_future(app(scope, self.inbox.get, self._send))

    async def _send(self, message: Message) -> None:
        if self.writes_fail:
            raise OSError("connection lost")
        await self._reading.wait()
        self.sent.append(message)

    def block(self) -> None:
        """The client stops reading: writes do not return."""
        self._reading.clear()

    def unblock(self) -> None:
        self._reading.set()

    def send(self, chunk: bytes, *, more: bool = False) -> None:
        self.inbox.put_nowait({"type": "http.request", "body": chunk, "more_body": more})

    def disconnect(self) -> None:
        self.inbox.put_nowait({"type": "http.disconnect"})

    @property
    def status(self) -> int | None:
        return next((m["status"] for m in self.sent if m["type"] == "http.response.start"), None)

    @property
    def writes(self) -> list[bytes]:
        return [m["body"] for m in self.sent if m["type"] == "http.response.body" and m.get("body")]

    @property
    def ended(self) -> bool:
        return any(m["type"] == "http.response.body" and not m.get("more_body", False) for m in self.sent)


async def settle() -> None:
    """Let every task that can run, run."""
    for _ in range(30):
        await asyncio.sleep(0)


def sse_events(raw: bytes, *, named: bool) -> list[dict[str, Any]]:
    """The events of a stream, read strictly: LF only, `event:` (if `named`) then one `data:` line, `[DONE]` dropped."""
    text = raw.decode()
    assert "\r" not in text
    assert "\ufffd" not in text
    assert text.endswith("\n\n")
    events = []
    for block in text[:-2].split("\n\n"):
        if block.startswith(":"):
            continue
        lines = block.split("\n")
        assert block.splitlines() == lines
        if named:
            assert len(lines) == 2
            assert lines[0].startswith("event: ")
        else:
            assert len(lines) == 1
        assert lines[-1].startswith("data: ")
        if lines[-1] == "data: [DONE]":
            continue
        event = json.loads(lines[-1].removeprefix("data: "))
        if named:
            assert lines[0] == f"event: {event['type']}"
        events.append(event)
    return events


def by_type(union: object) -> dict[str, type[BaseModel]]:
    """Each event's `type` and the vendor's model of it."""
    args = get_args(union)
    members = get_args(args[0]) or args
    return {name: model for model in members for name in get_args(model.model_fields["type"].annotation)}


_RESPONSES = by_type(ResponseStreamEvent)
_MESSAGES = by_type(RawMessageStreamEvent)


def check_responses(events: list[dict[str, Any]]) -> None:
    """Every event valid by the vendor's types, every order rule kept, streamed items equal to the final output."""
    for event in events:
        _RESPONSES[event["type"]].model_validate(event)
        assert "error" not in event or event["type"] == "error"
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
    terminal = {"response.completed", "response.incomplete", "response.failed"}
    assert [event["type"] in terminal for event in events] == [False] * (len(events) - 1) + [True]
    assert len({event["response"]["id"] for event in events if "response" in event}) == 1
    _check_items(events)


def _check_items(events: list[dict[str, Any]]) -> None:
    open_item: str | None = None
    texts: dict[tuple[object, ...], str] = {}
    for event in events:
        kind = event["type"]
        if kind == "response.output_item.added":
            assert open_item is None
            open_item = event["item"]["id"]
        elif kind == "response.output_item.done":
            assert open_item == event["item"]["id"]
            open_item = None
        elif "item_id" in event:
            assert event["item_id"] == open_item
        key = (kind.rsplit(".", 1)[0], event.get("output_index"))
        if kind.endswith(".delta"):
            texts[key] = texts.get(key, "") + event["delta"]
        elif kind.endswith(".done") and key in texts:
            assert event.get("text", event.get("arguments")) == texts[key]
    assert open_item is None
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert events[-1]["response"]["output"] == done


def check_messages(events: list[dict[str, Any]], *, complete: bool = True) -> None:
    """Every event valid by the vendor's types and every order rule kept."""
    spoken = [event for event in events if event["type"] not in ("ping", "error")]
    for event in spoken:
        _MESSAGES[event["type"]].model_validate(event)
    kinds = [event["type"] for event in spoken]
    if complete:
        assert kinds[0] == "message_start"
        assert kinds[-2:] == ["message_delta", "message_stop"]
        assert kinds.count("message_delta") == kinds.count("message_stop") == 1
    else:
        assert "message_stop" not in kinds
        assert [event["type"] for event in events].count("error") == 1
        assert events[-1]["type"] == "error"
    open_index, next_index = None, 0
    for event in spoken:
        if event["type"] == "content_block_start":
            assert (open_index, event["index"]) == (None, next_index)
            open_index, next_index = event["index"], next_index + 1
        elif event["type"] in ("content_block_delta", "content_block_stop"):
            assert event["index"] == open_index
            open_index = None if event["type"] == "content_block_stop" else open_index
    assert open_index is None or not complete


def check_chat(chunks: list[dict[str, Any]], *, n_choices: int = 1) -> None:
    """Every chunk valid by the vendor's types; each choice opened before and ended behind all it says."""
    for chunk in chunks:
        ChatCompletionChunk.model_validate(chunk)
    of_choice = [[c for chunk in chunks for c in chunk["choices"] if c["index"] == i] for i in range(n_choices)]
    assert sum(map(len, of_choice)) == sum(len(chunk["choices"]) for chunk in chunks)
    for said in of_choice:
        assert said[0]["delta"]["role"] == "assistant"
        ended = [choice["finish_reason"] is not None for choice in said]
        assert ended == [False] * (len(said) - 1) + [True]
    assert len({(chunk["id"], chunk["created"], chunk["model"]) for chunk in chunks}) == 1


def deltas(chunks: list[dict[str, Any]], key: str) -> Iterator[Any]:
    for chunk in chunks:
        for choice in chunk["choices"]:
            if choice["delta"].get(key):
                yield choice["delta"][key]
