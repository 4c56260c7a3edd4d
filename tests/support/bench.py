"""Pieces for tests of the bench: replies, samples, and a client whose server is a function."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx

from warmlane.bench.client import BenchClient, Target
from warmlane.bench.replies import Reply
from warmlane.bench.stats import Better
from warmlane.bench.workload import Metric, Sample, Shape, Side
from warmlane.errors import BenchError

TARGET = Target("http://bench.test", "m", "secret")


def reply(
    text: str = "yes", *, prompt: int = 10, cached: int = 0, output: int = 3, reason: str = "", ttft_s: float = 0.1
) -> Reply:
    return Reply(
        text=text,
        ttft_s=ttft_s,
        piece_times_s=(ttft_s,),
        total_s=1.0,
        prompt_tokens=prompt,
        cached_tokens=cached,
        output_tokens=output,
        miss_reason=reason,
    )


def chat_stream(*texts: str) -> httpx.Response:
    """A server's answer on Chat Completions."""
    chunks = [{"choices": [{"delta": {"content": text}}]} for text in texts]
    usage = {"prompt_tokens": 10, "completion_tokens": len(texts), "prompt_tokens_details": {"cached_tokens": 4}}
    events = [*map(json.dumps, [*chunks, {"choices": [], "usage": usage}]), "[DONE]"]
    return httpx.Response(200, text="".join(f"data: {event}\n\n" for event in events))


@asynccontextmanager
async def client_of(answer: Callable[[httpx.Request], httpx.Response]) -> AsyncIterator[BenchClient]:
    """A client of a server that is `answer`."""
    async with httpx.AsyncClient(base_url=TARGET.base_url, transport=httpx.MockTransport(answer)) as http:
        yield BenchClient(http, TARGET)


@dataclass
class ScriptedWorkload:
    """Writes down who asked for what, and gives the value scripted for the side, or fails where that is an error."""

    values: Mapping[str, float | BenchError]
    name: str = "scripted"
    metrics: tuple[Metric, ...] = (Metric(name="t", unit="s", better=Better.LOWER, bound=1.0),)
    ours_only: bool = False
    needs_launcher: bool = False
    shape: Shape = Shape.USUAL
    runs: list[tuple[str, float]] = field(default_factory=list)

    async def run(self, side: Side, rng: random.Random) -> Sample:
        self.runs.append((side.name, rng.random()))
        value = self.values[side.name]
        if isinstance(value, BenchError):
            raise value
        return Sample({"t": value}, (f"{side.name} noted",))
