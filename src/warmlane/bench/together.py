"""Several conversations at once."""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from warmlane.bench.client import BenchClient, Said
from warmlane.bench.replies import Reply
from warmlane.bench.stats import Better, percentile
from warmlane.bench.text import follow_up, instructions, short_chat
from warmlane.bench.workload import Metric, Sample, Shape, Side


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    """Short chats all sent at once: output tokens of them all, by the time until the last has ended."""

    name: ClassVar = "agg8"
    metrics: ClassVar = (
        Metric(name="throughput", unit="tok/s", better=Better.HIGHER, bound=1.0),
        Metric(name="decoded", unit="tok"),
    )
    ours_only: ClassVar = False
    needs_launcher: ClassVar = False
    shape: ClassVar = Shape.USUAL

    n_chats: int = 8
    max_tokens: int = 64

    async def run(self, side: Side, rng: random.Random) -> Sample:
        chats = [[Said("user", short_chat(rng))] for _ in range(self.n_chats)]
        start = time.perf_counter()
        replies = await ask_all(side.client, chats, max_tokens=self.max_tokens, in_flight=self.n_chats)
        wall = time.perf_counter() - start
        n_output = sum(reply.output_tokens for reply in replies)
        return Sample({"throughput": n_output / wall, "decoded": n_output})


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Conversations behind one long system prompt. All have their first turn, then all their second, then the third,
    `in_flight` requests at a time; TTFT counts from sending each."""

    name: ClassVar = "share12"
    metrics: ClassVar = (
        Metric(name="turn 0 ttft median", unit="s", better=Better.LOWER),
        Metric(name="turn 0 ttft p90", unit="s", better=Better.LOWER, bound=0.4),
        Metric(name="turn 0 reused", unit="%", better=Better.HIGHER),
        Metric(name="turn 1 ttft median", unit="s", better=Better.LOWER, bound=0.35),
        Metric(name="turn 1 reused", unit="%", better=Better.HIGHER),
        Metric(name="turn 2 ttft median", unit="s", better=Better.LOWER, bound=0.35),
        Metric(name="turn 2 reused", unit="%", better=Better.HIGHER),
        Metric(name="wall", unit="s", better=Better.LOWER, bound=0.6),
    )
    ours_only: ClassVar = False
    needs_launcher: ClassVar = False
    shape: ClassVar = Shape.USUAL

    n_conversations: int = 12
    n_words: int = 900
    max_tokens: int = 24
    in_flight: int = 4

    async def run(self, side: Side, rng: random.Random) -> Sample:
        system = Said("system", instructions(rng, self.n_words))
        dialogues = [[system] for _ in range(self.n_conversations)]
        values: dict[str, float] = {}
        start = time.perf_counter()
        for turn in range(3):
            for dialogue in dialogues:
                dialogue.append(Said("user", follow_up(rng) if turn else short_chat(rng)))
            replies = await ask_all(side.client, dialogues, max_tokens=self.max_tokens, in_flight=self.in_flight)
            for dialogue, reply in zip(dialogues, replies, strict=True):
                dialogue.append(Said("assistant", reply.text))
            values |= _of_turn(turn, replies)
        values["wall"] = time.perf_counter() - start
        return Sample(values)


def _of_turn(turn: int, replies: Sequence[Reply]) -> dict[str, float]:
    ttfts = [reply.ttft_s for reply in replies]
    reused = sum(reply.cached_tokens for reply in replies) / sum(reply.prompt_tokens for reply in replies)
    values = {f"turn {turn} ttft median": statistics.median(ttfts), f"turn {turn} reused": 100 * reused}
    if turn == 0:
        values["turn 0 ttft p90"] = percentile(ttfts, 90)
    return values


async def ask_all(
    client: BenchClient, dialogues: Sequence[Sequence[Said]], *, max_tokens: int, in_flight: int
) -> list[Reply]:
    """The replies to all, in order, with at most `in_flight` requests under way. Raises the first `BenchError`."""
    seats = asyncio.Semaphore(in_flight)

    async def ask(dialogue: Sequence[Said]) -> Reply:
        async with seats:
            return await client.chat(dialogue, max_tokens=max_tokens)

    tasks = [asyncio.create_task(ask(dialogue)) for dialogue in dialogues]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
