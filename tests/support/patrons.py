"""Clients that hold conversations on a server whose engine comes and goes, each turn asked until it is served."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import httpx

from support import strict
from support.crowd import NAMES
from support.dialects import PATHS, body_of, told

Message = Callable[[random.Random, str], str]
"""The user's message that holds a number."""

TURNS = 4
SYSTEM = "You keep numbers, and tell nobody another's. " * 20


@dataclass(slots=True)
class Moments:
    """What has happened so far, for those who wait for the n-th time something does."""

    counts: Counter[str] = field(default_factory=Counter)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    one_asks: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while `/ready` is asked again and again."""

    def note(self, what: str) -> None:
        self.counts[what] += 1
        self._changed.set()

    async def more(self, what: str, n: int) -> None:
        """Until `what` has happened `n` more times."""
        wanted = self.counts[what] + n
        while self.counts[what] < wanted:
            self._changed.clear()
            await self._changed.wait()


@dataclass(frozen=True, slots=True)
class Served:
    """A turn that succeeded."""

    id: str
    text: str


@dataclass(slots=True)
class _Side:
    """What one server was told and has said in this conversation."""

    http: httpx.AsyncClient
    dialogue: list[tuple[str, str]] = field(default_factory=lambda: [("system", SYSTEM)])
    previous: str | None = None

    def body(self, name: str, message: str, **extra: object) -> dict[str, object]:
        if name == "responses" and self.previous is not None:
            extra["previous_response_id"] = self.previous
            return body_of(name, [("user", message)], temperature=0, **extra)  # type: ignore[arg-type]
        return body_of(name, [*self.dialogue, ("user", message)], temperature=0, **extra)  # type: ignore[arg-type]

    def hear(self, message: str, answer: Served) -> None:
        self.dialogue += [("user", message), ("assistant", answer.text)]
        self.previous = answer.id


class Patron:
    """Conversations in one dialect, one after the other, each turn asked until it is served.

    `calm` is a server that nobody disturbs: it is asked the same and says what is right. Without one, an answer must
    at least hold no other patron's number.
    """

    def __init__(
        self,
        number: int,
        http: httpx.AsyncClient,
        moments: Moments,
        *,
        calm: httpx.AsyncClient | None,
        model: str,
        message: Message,
        max_tokens: int,
    ) -> None:
        self._name = NAMES[number % len(NAMES)]
        self._rng = random.Random(number)
        self._http = http
        self._moments = moments
        self._calm = calm
        self._model = model
        self._message = message
        self._max_tokens = max_tokens
        self.secret = str(70_000 + 1000 * number)
        self.others: frozenset[str] = frozenset()

    async def converse(self, going_on: asyncio.Event) -> None:
        """Until `going_on` is cleared, and to the end of the conversation begun."""
        while going_on.is_set():
            asked: list[str] = []
            here, there = _Side(self._http), None if self._calm is None else _Side(self._calm)
            for turn in range(TURNS):
                asked.append(self._message(self._rng, f"{self.secret}.{turn}"))
                answer = await self._until_served(here, asked[-1])
                if there is not None:
                    right = await self._ask(there, asked[-1], stream=False)
                    assert isinstance(right, Served)
                    assert answer.text == right.text
                    there.hear(asked[-1], right)
                assert not any(other in answer.text for other in self.others)
                here.hear(asked[-1], answer)
                self._moments.note("served")

    async def _until_served(self, side: _Side, message: str) -> Served:
        while True:
            answer = await self._ask(side, message, stream=self._rng.random() < 0.6)
            if answer is not None:
                return answer
            self._moments.note("failed")
            async with self._moments.one_asks:
                await until_ready(self._http)

    async def _ask(self, side: _Side, message: str, *, stream: bool) -> Served | None:
        """None if it ended in the dialect's own error."""
        body = side.body(self._name, message, model=self._model, stream=stream, max_tokens=self._max_tokens)
        if not stream:
            return whole(self._name, await side.http.post(PATHS[self._name], json=body))
        async with side.http.stream("POST", PATHS[self._name], json=body) as response:
            self._moments.note("opened")
            lines: list[str] = []
            async for line in response.aiter_lines():
                lines.append(line)
                if "delta" in line:
                    self._moments.note("piece")
        return streamed(self._name, response, lines)


def whole(name: str, response: httpx.Response) -> Served | None:
    """An answer in one piece, or None for the 503 that says to come again."""
    if response.status_code == 200:
        answer = told(name, response)
        return Served(answer.id, answer.text)
    assert response.status_code == 503, (response.status_code, response.text)
    assert int(response.headers["retry-after"]) >= 1
    error = response.json()["error"]
    assert error["type"] == ("overloaded_error" if name == "messages" else "server_error"), error
    return None


def streamed(name: str, response: httpx.Response, lines: list[str]) -> Served | None:
    """A stream that ended, once: as the dialect ends one, or in its error."""
    raw = "\n".join(lines) + "\n"
    response = httpx.Response(response.status_code, headers=_plain(response), content=raw, request=response.request)
    if response.status_code != 200:
        return whole(name, response)
    events = strict.sse(response)
    failures = [i for i, e in enumerate(events) if e.get("type") == "error" or e.get("error") is not None]
    if not failures:
        return _succeeded(name, events, raw)
    if name == "responses":
        assert [e["type"] for e in events[-2:]] == ["error", "response.failed"]
        assert failures == [len(events) - 2]
        assert sum(e["type"] in strict.TERMINALS for e in events) == 1
    else:
        assert failures == [len(events) - 1]
        assert "[DONE]" not in raw
        assert not any(e.get("type") in ("message_stop", "message_delta") for e in events)
    return None


def _plain(response: httpx.Response) -> dict[str, str]:
    """Its headers, less those of how it travelled."""
    return {k: v for k, v in response.headers.items() if k not in ("transfer-encoding", "content-encoding")}


def _succeeded(name: str, events: list[dict[str, object]], raw: str) -> Served:
    if name == "responses":
        final = strict.response_stream(events)
        return Served(final.id, final.output_text)
    if name == "messages":
        return Served("", strict.message_stream(events))
    assert raw.count("data: [DONE]") == 1
    return Served("", strict.completion_stream(events, usage=True))


async def until_ready(http: httpx.AsyncClient, *, ready: bool = True) -> None:
    """Returns once `/ready` says so, or says that it is not."""
    while (await http.get("/ready")).status_code != (200 if ready else 503):
        pass
