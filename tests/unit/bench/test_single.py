"""One conversation at a time: for how long its replies are timed."""

from __future__ import annotations

import json
import random

import httpx

from support.bench import chat_stream, client_of
from warmlane.bench.single import MOST_TURNS, Decode
from warmlane.bench.workload import Sample, Side
from warmlane.errors import BenchError


async def decode(workload: Decode, *pieces: str) -> tuple[Sample | None, list[int]]:
    """What it found, if anything, where every reply is of these pieces, and how many messages each turn had."""
    asked: list[int] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(len(json.loads(request.content)["messages"]))
        return chat_stream(*pieces)

    async with client_of(answer) as client:
        try:
            return await workload.run(Side(name="ours", client=client), random.Random(1)), asked
        except BenchError:
            return None, asked


async def test_a_reply_that_is_long_enough_is_timed_alone() -> None:
    sample, asked = await decode(Decode(n_words=20, n_tokens=3), *"abcd")

    assert sample is not None
    assert (sample.values["decoded"], asked) == (3, [1])


async def test_replies_that_end_soon_are_timed_together() -> None:
    sample, asked = await decode(Decode(n_words=20, n_tokens=5), *"abc")

    assert sample is not None
    assert (sample.values["decoded"], asked) == (6, [1, 3, 5])
    assert sample.values["speed"] > 0


async def test_replies_without_a_second_piece_have_no_speed() -> None:
    sample, asked = await decode(Decode(n_words=20, n_tokens=5), "a")

    assert (sample, len(asked)) == (None, MOST_TURNS)
