"""What everything around the engine costs: our server against a bare loop over the same engine in this process.

The only part of the bench that knows the engine. The loop has no scheduler, no cache, no text and no HTTP: it prefills
each prompt, then decodes all sequences together and takes the likeliest token. It computes as many tokens as the server
did, so the times compare whatever was said.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from warmlane.bench.client import Said
from warmlane.bench.stats import Better
from warmlane.bench.text import opening, words
from warmlane.bench.together import ask_all
from warmlane.bench.workload import Against, Metric, Sample, Shape, Side
from warmlane.engine.assembly import open_backend
from warmlane.engine.backends.base import Backend, Slice
from warmlane.engine.config import EngineConfig


@dataclass(frozen=True, slots=True)
class Work:
    """One sequence for the bare loop: tokens to prefill, and to decode (at least 1)."""

    n_prompt: int
    n_output: int


class BareLoop:
    """The engine alone, on a thread of its own as it wants. Make it with `open`."""

    def __init__(self, backend: Backend, thread: ThreadPoolExecutor) -> None:
        self._backend = backend
        self._thread = thread

    @classmethod
    @asynccontextmanager
    async def open(cls, config: EngineConfig) -> AsyncIterator[BareLoop]:
        """Load the model, and free it at the end. Raises `errors.ConfigError` for one that cannot be used."""
        with ThreadPoolExecutor(max_workers=1, thread_name_prefix="bare-loop") as thread:
            loop = asyncio.get_running_loop()
            backend = await loop.run_in_executor(thread, open_backend, config)
            try:
                yield cls(backend, thread)
            finally:
                await loop.run_in_executor(thread, backend.close)

    async def run(self, works: Sequence[Work], rng: random.Random) -> float:
        """Seconds for all of the work."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._run, tuple(works), rng.random())

    def _run(self, works: Sequence[Work], seed: float) -> float:
        backend = self._backend
        backend.clear()
        start = time.perf_counter()
        last = [_prefill(backend, seq, work, random.Random(f"{seed} {seq}")) for seq, work in enumerate(works)]
        for step in range(1, max(work.n_output for work in works)):
            running = [seq for seq, work in enumerate(works) if step < work.n_output]
            decoded = backend.decode(
                [
                    Slice(seq, works[seq].n_prompt + step - 1, np.array([last[seq]], dtype=np.int32), wants_logits=True)
                    for seq in running
                ]
            )
            for index, seq in enumerate(running):
                last[seq] = int(decoded.logits(index).argmax())
        return time.perf_counter() - start


def _prefill(backend: Backend, seq: int, work: Work, rng: random.Random) -> int:
    """Prefill a random prompt in the largest slices there may be; the first token behind it."""
    info = backend.info
    tokens = np.array([rng.randrange(info.n_vocab // 2) for _ in range(work.n_prompt)], dtype=np.int32)
    for position in range(0, work.n_prompt, info.n_batch):
        piece = tokens[position : position + info.n_batch]
        is_last = position + info.n_batch >= work.n_prompt
        decoded = backend.decode([Slice(seq, position, piece, wants_logits=is_last)])
    return int(decoded.logits(0).argmax())


@dataclass(frozen=True, slots=True, kw_only=True)
class Overhead:
    """Prompts that nothing is warm of, all at once, greedy: the bare loop's time divided by the server's for the same
    number of tokens. `config` must be that of the server's engine."""

    name: ClassVar = "overhead"
    metrics: ClassVar = (
        Metric(name="throughput by bare loop", better=Better.HIGHER, bound=0.97, against=Against.ITSELF),
        Metric(name="served", unit="s", better=Better.LOWER),
        Metric(name="bare", unit="s", better=Better.LOWER),
        Metric(name="reused", unit="%"),
        Metric(name="prompts", unit="tok"),
        Metric(name="decoded", unit="tok"),
    )
    ours_only: ClassVar = True
    needs_launcher: ClassVar = True
    shape: ClassVar = Shape.USUAL

    config: EngineConfig
    n_chats: int = 8
    n_words: int = 150
    max_tokens: int = 64

    async def run(self, side: Side, rng: random.Random) -> Sample:
        # A system prompt of its own each, so that not even the template's is shared.
        chats = [[Said("system", words(rng, 4)), Said("user", opening(rng, self.n_words))] for _ in range(self.n_chats)]
        start = time.perf_counter()
        replies = await ask_all(side.client, chats, max_tokens=self.max_tokens, in_flight=self.n_chats)
        served = time.perf_counter() - start
        works = [Work(reply.prompt_tokens - reply.cached_tokens, reply.output_tokens) for reply in replies]
        async with BareLoop.open(self.config) as loop:
            await loop.run([Work(work.n_prompt, 2) for work in works], rng)
            bare = await loop.run(works, rng)
        n_prompt = sum(reply.prompt_tokens for reply in replies)
        values = {
            "throughput by bare loop": bare / served,
            "served": served,
            "bare": bare,
            "reused": 100 * sum(reply.cached_tokens for reply in replies) / n_prompt,
            "prompts": float(n_prompt),
            "decoded": float(sum(reply.output_tokens for reply in replies)),
        }
        return Sample(values)
