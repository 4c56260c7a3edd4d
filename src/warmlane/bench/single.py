"""One conversation at a time: a cold turn, a warm one, and the speed of decoding."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar

from warmlane.bench.client import Said
from warmlane.bench.stats import Better
from warmlane.bench.text import follow_up, opening
from warmlane.bench.workload import Metric, Sample, Shape, Side
from warmlane.errors import BenchError

PROMPT_WORDS = 905
"""Some 950 tokens in SmolLM2's vocabulary, the question and the template included."""

MOST_TURNS = 8
"""Of a conversation whose replies are timed: they add less to the prompt than it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SingleCold:
    """A prompt nobody has sent before."""

    name: ClassVar = "single-cold"
    metrics: ClassVar = (
        Metric(name="ttft", unit="s", better=Better.LOWER, bound=1.05),
        Metric(name="prompt", unit="tok"),
    )
    ours_only: ClassVar = False
    needs_launcher: ClassVar = False
    shape: ClassVar = Shape.USUAL

    n_words: int = PROMPT_WORDS
    max_tokens: int = 64

    async def run(self, side: Side, rng: random.Random) -> Sample:
        reply = await side.client.chat([Said("user", opening(rng, self.n_words))], max_tokens=self.max_tokens)
        return Sample({"ttft": reply.ttft_s, "prompt": reply.prompt_tokens})


@dataclass(frozen=True, slots=True, kw_only=True)
class SingleWarm:
    """The second turn of a conversation whose first has just ended."""

    name: ClassVar = "single-warm"
    metrics: ClassVar = (
        Metric(name="ttft", unit="s", better=Better.LOWER, bound=1.0),
        Metric(name="reused", unit="%", better=Better.HIGHER),
    )
    ours_only: ClassVar = False
    needs_launcher: ClassVar = False
    shape: ClassVar = Shape.USUAL

    n_words: int = PROMPT_WORDS
    max_tokens: int = 64

    async def run(self, side: Side, rng: random.Random) -> Sample:
        said = [Said("user", opening(rng, self.n_words))]
        first = await side.client.chat(said, max_tokens=self.max_tokens)
        said += [Said("assistant", first.text), Said("user", follow_up(rng))]
        second = await side.client.chat(said, max_tokens=self.max_tokens)
        return Sample({"ttft": second.ttft_s, "reused": 100 * second.cached_tokens / second.prompt_tokens})


@dataclass(frozen=True, slots=True, kw_only=True)
class Decode:
    """Tokens a second between the first piece of a reply and the last, behind a prompt of about a thousand tokens.

    A reply may end after a few tokens, too soon to tell a speed: the conversation then goes on until `n_tokens` were
    timed, for `MOST_TURNS` turns at most."""

    name: ClassVar = "decode"
    metrics: ClassVar = (
        Metric(name="speed", unit="tok/s", better=Better.HIGHER, bound=1.0),
        Metric(name="decoded", unit="tok"),
    )
    ours_only: ClassVar = False
    needs_launcher: ClassVar = False
    shape: ClassVar = Shape.USUAL

    n_words: int = PROMPT_WORDS
    max_tokens: int = 128
    n_tokens: int = 127

    async def run(self, side: Side, rng: random.Random) -> Sample:
        said = [Said("user", opening(rng, self.n_words))]
        timed, took_s = 0, 0.0
        for _ in range(MOST_TURNS):
            reply = await side.client.chat(said, max_tokens=self.max_tokens)
            times = reply.piece_times_s
            if len(times) > 1:
                timed += reply.output_tokens - 1  # the first is not timed
                took_s += times[-1] - times[0]
            if timed >= self.n_tokens:
                break
            said += [Said("assistant", reply.text), Said("user", follow_up(rng))]
        if took_s <= 0:
            raise BenchError("decode: the replies were too short to be timed.")
        return Sample({"speed": timed / took_s, "decoded": timed})
