"""A scripted spine for tests of the HTTP edge: it plays events, and notes what the edge did with them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace

from warmlane.conversation.events import (
    Failed,
    Finished,
    ReasoningDelta,
    Started,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    TurnEvent,
    Validated,
)
from warmlane.conversation.messages import Message, Part, Reasoning, Role, Text, ToolCall
from warmlane.conversation.tools import TokenLogprob
from warmlane.conversation.turn import (
    CacheFacts,
    CacheOutcome,
    Outcome,
    StopReason,
    TurnRequest,
    Usage,
)
from warmlane.errors import ModelNotFound, ResponseNotFound
from warmlane.host.view import ModelCard, Readiness, SessionCard
from warmlane.sessions import Secrets
from warmlane.turns.archive import Archived, Erasure
from warmlane.turns.cancel import TurnCancelled
from warmlane.turns.runs import LoggedEvent
from warmlane.turns.stream import TurnStream

MODEL = "tiny"

Step = TurnEvent | Callable[[], Awaitable[object]]
"""An event to put, or something to wait for before the next one."""


def outcome(
    *parts: Part,
    stop_reason: StopReason = StopReason.STOP,
    stop_sequence: str | None = None,
    prompt_tokens: int = 12,
    cached_tokens: int = 5,
    output_tokens: int = 3,
    reasoning_tokens: int = 0,
    logprobs: tuple[TokenLogprob, ...] = (),
) -> Outcome:
    return Outcome(
        message=Message(Role.ASSISTANT, parts),
        stop_reason=stop_reason,
        stop_sequence=stop_sequence,
        usage=Usage(prompt_tokens, cached_tokens, output_tokens, reasoning_tokens),
        cache=CacheFacts(CacheOutcome.HIT, "hit", cached_tokens),
        logprobs=logprobs,
    )


def text_turn(
    *deltas: str,
    stop_reason: StopReason = StopReason.STOP,
    stop_sequence: str | None = None,
) -> list[Step]:
    """A whole turn that says the deltas."""
    said = "".join(deltas)
    parts = (Text(said),) if said else ()
    end = Finished(outcome(*parts, stop_reason=stop_reason, stop_sequence=stop_sequence))
    return [Validated(), Started(12, 5), *map(TextDelta, deltas), end]


def rich_turn() -> list[Step]:
    """Reasoning, text, and two calls."""
    parts: tuple[Part, ...] = (
        Reasoning("let me see"),
        Text("I'll look."),
        ToolCall("call_a", "get_weather", '{"city":"Bern"}'),
        ToolCall("call_b", "get_time", "{}"),
    )
    return [
        Validated(),
        Started(12, 5),
        ReasoningDelta("let me "),
        ReasoningDelta("see"),
        TextDelta("I'll "),
        TextDelta("look."),
        ToolCallStarted(0, "call_a", "get_weather"),
        ToolCallDelta(0, '{"city":'),
        ToolCallDelta(0, '"Bern"}'),
        ToolCallStarted(1, "call_b", "get_time"),
        ToolCallDelta(1, "{}"),
        Finished(outcome(*parts, stop_reason=StopReason.TOOL_CALLS, reasoning_tokens=2)),
    ]


@dataclass(eq=False)
class FakePermit:
    """`open` until it is released or a turn takes it over."""

    tenant: str
    open: bool = True

    def release(self) -> None:
        self.open = False


@dataclass
class FakeTurns:
    """Plays `script` for every turn. `refusal` is raised by `reserve` instead, `start_error` by `start`."""

    script: Sequence[Step] = field(default_factory=lambda: text_turn("Hello", " world"))
    refusal: Exception | None = None
    start_error: Exception | None = None
    token_count: int = 42
    drain_timeout_s: float = 30.0
    buffer_events: int = 256
    requests: list[TurnRequest] = field(default_factory=list)
    counted: list[TurnRequest] = field(default_factory=list)
    permits: list[FakePermit] = field(default_factory=list)
    streams: list[TurnStream] = field(default_factory=list)
    accepted: list[bool] = field(default_factory=list)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    played: list[asyncio.Task[None]] = field(default_factory=list)
    secrets: Secrets = field(default_factory=Secrets.in_memory)

    @property
    def open_permits(self) -> int:
        return sum(permit.open for permit in self.permits)

    @property
    def last(self) -> TurnRequest:
        return self.requests[-1]

    def domain(self, tenant: str, salt: str | None) -> bytes:
        return f"{tenant}/{'-' if salt is None else salt}".encode()[:16].ljust(16, b".")

    def reserve(self, model: str, tenant: str) -> FakePermit:
        if self.refusal is not None:
            raise self.refusal
        if model != MODEL:
            raise ModelNotFound(model, (MODEL,))
        permit = FakePermit(tenant)
        self.permits.append(permit)
        return permit

    def start(self, request: TurnRequest, permit: object) -> TurnStream:
        if self.start_error is not None:
            raise self.start_error
        assert isinstance(permit, FakePermit)
        permit.open = False
        self.requests.append(request)
        stream = TurnStream(drain_timeout_s=self.drain_timeout_s, buffer_events=self.buffer_events)
        self.streams.append(stream)
        self.played.append(asyncio.create_task(self._play(stream)))
        self.tasks.append(self.played[-1])
        return stream

    def seal(self, domain: bytes, data: bytes) -> str:
        return self.secrets.seal(domain, data)

    def unseal(self, domain: bytes, text: str) -> bytes | None:
        return self.secrets.unseal(domain, text)

    def attend(self, work: Coroutine[None, None, None], *, name: str) -> None:
        self.tasks.append(asyncio.create_task(work, name=name))

    def cancel(self, response_id: str, tenant: str) -> bool:
        """Ends the turn at once, wherever its script is."""
        for request, stream, task in zip(self.requests, self.streams, self.played, strict=True):
            if (request.response_id, request.tenant) == (response_id, tenant) and not task.done():
                task.cancel()
                stream.tell(Failed(TurnCancelled("The response was cancelled.")))
                return True
        return False

    async def count_tokens(self, request: TurnRequest) -> int:
        if request.model != MODEL:
            raise ModelNotFound(request.model, (MODEL,))
        self.counted.append(request)
        return self.token_count

    async def settle(self) -> None:
        """Wait for the turns that were started."""
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _play(self, stream: TurnStream) -> None:
        for step in self.script:
            if isinstance(step, Finished | Failed):
                self.accepted.append(await stream.finish(step))
            elif callable(step):
                await step()
            else:
                await stream.put(step)


class Scripts(FakeTurns):
    """A script a turn, the last one again and again."""

    def __init__(self, *scripts: Sequence[Step]) -> None:
        super().__init__()
        self.scripts = list(scripts)

    def start(self, request: TurnRequest, permit: object) -> TurnStream:
        self.script = self.scripts.pop(0) if len(self.scripts) > 1 else self.scripts[0]
        return super().start(request, permit)


@dataclass
class FakeHost:
    cards: list[ModelCard] = field(default_factory=lambda: [ModelCard(MODEL, 1_700_000_000, 4096)])
    warm: list[tuple[str, SessionCard]] = field(default_factory=list)
    ready: Readiness = field(default_factory=lambda: Readiness(True, "", 1, 2, 3, 8, 16))
    told_of_drain: list[Callable[[], None]] = field(default_factory=list)
    aliases: dict[str, str] = field(default_factory=dict)

    def models(self) -> list[ModelCard]:
        return self.cards

    def canonical(self, name: str) -> str:
        return self.aliases.get(name, name)

    def card(self, name: str) -> ModelCard | None:
        return next((card for card in self.cards if card.id == name), None)

    def sessions(self, tenant: str | None) -> list[SessionCard]:
        return [card for owner, card in self.warm if tenant in (None, owner)]

    def end_session(self, session_id: str, tenant: str | None) -> bool:
        left = [(owner, card) for owner, card in self.warm if card.id != session_id or tenant not in (None, owner)]
        ended, self.warm = len(left) < len(self.warm), left
        return ended

    def readiness(self) -> Readiness:
        return self.ready

    def on_drain(self, tell: Callable[[], None]) -> Callable[[], None]:
        self.told_of_drain.append(tell)
        return lambda: self.told_of_drain.remove(tell)

    def begin_drain(self) -> None:
        for tell in self.told_of_drain:
            tell()


@dataclass
class FakeArchive:
    """Rows by (tenant, id)."""

    rows: dict[tuple[str, str], Archived] = field(default_factory=dict)
    said: tuple[Message, ...] = ()

    async def retrieve(self, response_id: str, tenant: str) -> Archived:
        row = self.rows.get((tenant, response_id))
        if row is None:
            raise ResponseNotFound(response_id)
        return row

    async def conversation(self, response_id: str, tenant: str) -> tuple[Message, ...]:
        await self.retrieve(response_id, tenant)
        return self.said

    async def delete(self, response_id: str, tenant: str) -> None:
        await self.retrieve(response_id, tenant)
        del self.rows[tenant, response_id]

    async def erase(self, tenant: str) -> Erasure:
        mine = [key for key in self.rows if key[0] == tenant]
        for key in mine:
            del self.rows[key]
        return Erasure(responses=len(mine), conversations=0)


@dataclass
class FakeRuns:
    """Runs of `archive`, by (tenant, id); `down` makes every write fail."""

    archive: FakeArchive
    log: dict[tuple[str, str], list[LoggedEvent]] = field(default_factory=dict)
    down: Exception | None = None
    attended: set[tuple[str, str]] = field(default_factory=set)
    asked_to_cancel: list[str] = field(default_factory=list)

    def leave(self, response_id: str, tenant: str) -> None:
        self.attended.discard((response_id, tenant))

    async def ask_to_cancel(self, response_id: str, tenant: str) -> bool:
        self._check()
        row = self.archive.rows.get((tenant, response_id))
        if row is None or row.status not in ("queued", "in_progress"):
            return False
        self.asked_to_cancel.append(response_id)
        return True

    async def begin(self, request: TurnRequest) -> None:
        self._check()
        self.attended.add((request.response_id, request.tenant))
        key = (request.tenant, request.response_id)
        self.archive.rows[key] = Archived(request.response_id, request.echo, None, 0.0, request.input, "queued")
        self.log[key] = []

    async def progress(self, response_id: str, tenant: str) -> None:
        self._move(response_id, tenant, "in_progress")

    async def end(self, response_id: str, tenant: str, *, cancelled: bool = False, error: bytes | None = None) -> None:
        self._move(response_id, tenant, "cancelled" if cancelled else "failed", error)

    async def append(self, response_id: str, tenant: str, events: Sequence[LoggedEvent]) -> None:
        self._check()
        self.log.setdefault((tenant, response_id), []).extend(events)

    async def events(self, response_id: str, tenant: str, *, after: int) -> tuple[LoggedEvent, ...]:
        await self.archive.retrieve(response_id, tenant)
        later = [event for event in self.log.get((tenant, response_id), ()) if event.sequence > after]
        return tuple(later[:3])

    def _move(self, response_id: str, tenant: str, status: str, error: bytes | None = None) -> None:
        self._check()
        row = self.archive.rows.get((tenant, response_id))
        if row is not None and row.outcome is None:
            self.archive.rows[tenant, response_id] = replace(row, status=status, error=error)

    def _check(self) -> None:
        if self.down is not None:
            raise self.down
