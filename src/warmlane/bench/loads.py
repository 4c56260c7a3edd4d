"""What a server does under more than it can carry: a burst beyond its budget, and a long prompt beside decoding."""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import ClassVar

from warmlane.bench.burst import burst
from warmlane.bench.client import CHAT_PATH, BenchClient, Said, chat_body
from warmlane.bench.replies import Reply
from warmlane.bench.stats import Better, percentile
from warmlane.bench.text import opening, short_chat
from warmlane.bench.workload import Against, Metric, Sample, Shape, Side
from warmlane.errors import BenchError

REFUSALS = (429, 503)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overload:
    """Arrivals all at once, more than a server with 4 seats and 16 places to wait takes."""

    name: ClassVar = "overload"
    metrics: ClassVar = (
        Metric(name="served"),
        Metric(name="refused"),
        Metric(name="broken off", better=Better.LOWER),
        Metric(name="refusal p50", unit="s", better=Better.LOWER),
        Metric(name="refusal p99", unit="s", better=Better.LOWER),
        Metric(name="served p50", unit="s", better=Better.LOWER),
        Metric(name="wall", unit="s", better=Better.LOWER),
    )
    ours_only: ClassVar = False
    needs_launcher: ClassVar = False
    shape: ClassVar = Shape.SMALL

    n_arrivals: int = 200
    max_tokens: int = 24

    async def run(self, side: Side, rng: random.Random) -> Sample:
        target = side.client.target
        bodies = [
            chat_body(target.model, [Said("user", short_chat(rng))], max_tokens=self.max_tokens)
            for _ in range(self.n_arrivals)
        ]
        start = time.perf_counter()
        answers = await burst(target, CHAT_PATH, bodies)
        wall = time.perf_counter() - start
        served = [answer for answer in answers if answer.status == 200]
        refused = [answer for answer in answers if answer.status in REFUSALS]
        values = {
            "served": float(len(served)),
            "refused": float(len(refused)),
            "broken off": float(len(answers) - len(served) - len(refused)),
            "wall": wall,
        }
        if refused:
            values["refusal p50"] = percentile([answer.head_s for answer in refused], 50)
            values["refusal p99"] = percentile([answer.head_s for answer in refused], 99)
        if served:
            values["served p50"] = percentile([answer.total_s for answer in served], 50)
        return Sample(values, () if side.launcher else (f"{side.name}: with the budget it was started with",))


@dataclass(slots=True)
class _Stream:
    """When each piece of one stream came, on the clock; the last list is of the reply under way."""

    replies: list[list[float]] = field(default_factory=list)

    def gaps(self, start: float, end: float) -> list[float]:
        """Seconds between neighbouring pieces of one reply, of gaps that lie at least in part between two times."""
        return [
            later - earlier
            for times in self.replies
            for earlier, later in pairwise(times)
            if later > start and earlier < end
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Intrude:
    """Streams decode, and a long prompt arrives among them: how long their pieces then take to come, by how long they
    took before; and how long the newcomer waits for its first token, by how long it does alone."""

    name: ClassVar = "intrude"
    ours_only: ClassVar = False
    needs_launcher: ClassVar = False
    shape: ClassVar = Shape.LONG

    n_streams: int = 4
    n_words: int = 3950
    """Some 4k tokens."""
    undisturbed_pieces: int = 40
    """Of each stream, before the newcomer is sent."""
    max_tokens: int = 512
    gap_bound: float = 12.0
    newcomer_bound: float | None = 2.0

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return (
            Metric(name="gap p99 by undisturbed", better=Better.LOWER, bound=self.gap_bound, against=Against.ITSELF),
            Metric(name="newcomer by alone", better=Better.LOWER, bound=self.newcomer_bound, against=Against.ITSELF),
            Metric(name="gap p99", unit="s", better=Better.LOWER),
            Metric(name="undisturbed gap", unit="s", better=Better.LOWER),
            Metric(name="newcomer alone", unit="s", better=Better.LOWER),
            Metric(name="newcomer beside", unit="s", better=Better.LOWER),
            Metric(name="newcomer's prompt", unit="tok"),
        )

    async def run(self, side: Side, rng: random.Random) -> Sample:
        alone = await self._newcomer(side.client, rng)
        try:
            async with self._decoding(side.client, rng) as streams:
                sent = time.perf_counter()
                beside = await self._newcomer(side.client, rng)
                first = sent + beside.ttft_s
        except* BenchError as group:
            raise BenchError(f"intrude: {group.exceptions[0]}") from None
        before = [gap for stream in streams for gap in stream.gaps(0.0, sent)]
        during = [gap for stream in streams for gap in stream.gaps(sent, first)]
        if not during:
            raise BenchError("intrude: no stream brought a piece while the newcomer was prefilled.")
        usual, worst = statistics.median(before), percentile(during, 99)
        values = {
            "gap p99 by undisturbed": worst / usual,
            "newcomer by alone": beside.ttft_s / alone.ttft_s,
            "gap p99": worst,
            "undisturbed gap": usual,
            "newcomer alone": alone.ttft_s,
            "newcomer beside": beside.ttft_s,
            "newcomer's prompt": float(beside.prompt_tokens),
        }
        return Sample(values)

    async def _newcomer(self, client: BenchClient, rng: random.Random) -> Reply:
        return await client.chat([Said("user", opening(rng, self.n_words))], max_tokens=1)

    @asynccontextmanager
    async def _decoding(self, client: BenchClient, rng: random.Random) -> AsyncIterator[Sequence[_Stream]]:
        """Streams that go on, one reply behind the other, from when each has its undisturbed pieces until the end."""
        streams = [_Stream() for _ in range(self.n_streams)]
        settled = [asyncio.Event() for _ in streams]
        seeds = [rng.random() for _ in streams]
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._go_on(client, stream, event, random.Random(seed)))
                for stream, event, seed in zip(streams, settled, seeds, strict=True)
            ]
            for event in settled:
                await event.wait()
            yield streams
            for task in tasks:
                task.cancel()

    async def _go_on(self, client: BenchClient, stream: _Stream, settled: asyncio.Event, rng: random.Random) -> None:
        n_pieces = 0

        def on_piece(at: float) -> None:
            nonlocal n_pieces
            n_pieces += 1
            stream.replies[-1].append(at)
            if n_pieces > self.undisturbed_pieces:
                settled.set()

        while True:
            stream.replies.append([])
            await client.chat([Said("user", short_chat(rng))], max_tokens=self.max_tokens, on_piece=on_piece)
