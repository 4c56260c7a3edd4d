"""What a turn reuses where tools or reasoning changed, and what it says about it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
import pytest

from support.spine import Rig, rig, said, user
from warmlane.conversation.messages import Message, Reasoning, Role, Text
from warmlane.conversation.tools import Tool
from warmlane.conversation.turn import Dialect, DivergenceCause, Outcome, Sampling
from warmlane.engine.config import EngineConfig
from warmlane.engine.local import LocalEngine
from warmlane.engine.protocol import Engine

GREEDY = Sampling(temperature=0.0)
ONE = Tool(name="one", parameters='{"type":"object","properties":{"a":{},"b":{}}}')
TURNED = Tool(name="one", parameters='{"type":"object","properties":{"b":{},"a":{}}}')
TWO = Tool(name="two")
REPLAYS: dict[str, object] = {"dialect": Dialect.MESSAGES, "store": False}


def hashing() -> Callable[[EngineConfig], Awaitable[Engine]]:
    async def start(config: EngineConfig) -> Engine:
        return await LocalEngine.start(msgspec.structs.replace(config, simulated_hash=True))

    return start


async def after_thinking(spine: Rig, *, echoed: bool) -> tuple[Outcome, Outcome]:
    """A turn that thinks, and the next one of a client that sends the thought back, or not."""
    question = user("THINK:a thought\nEMIT:hello")
    first = spine.ask((question,), **REPLAYS)
    one = await spine.finished(first)
    parts = (Reasoning("a thought"), Text("hello")) if echoed else (Text("hello"),)
    history = (question, Message(Role.ASSISTANT, parts), user("more " * 20))
    return one, await spine.finished(spine.ask(history, compare_to=first.response_id, **REPLAYS))


async def test_a_thought_that_comes_back_costs_nothing() -> None:
    async with rig() as spine:
        one, two = await after_thinking(spine, echoed=True)
        assert two.usage.cached_tokens >= one.usage.prompt_tokens + one.usage.output_tokens - 1
        assert two.cache.divergence is None


async def test_without_the_thought_reuse_ends_where_it_was_and_the_turn_says_so() -> None:
    async with rig() as spine:
        one, two = await after_thinking(spine, echoed=False)
        assert two.usage.cached_tokens == one.usage.prompt_tokens
        assert two.cache.divergence is not None
        assert two.cache.divergence.cause is DivergenceCause.MESSAGES_CHANGED
        assert two.cache.divergence.offset == one.usage.prompt_tokens
        assert "<think>" in two.cache.divergence.before


@pytest.mark.parametrize("tools", [(TWO, ONE), (TURNED, TWO), (ONE,), ()])
async def test_changed_tools_are_named(tools: tuple[Tool, ...]) -> None:
    async with rig() as spine:
        first = spine.ask("hello", tools=(ONE, TWO), **REPLAYS)
        await spine.finished(first)
        history = (user("hello"), said("echo: hello"), user("more"))
        changed = await spine.finished(spine.ask(history, tools=tools, compare_to=first.response_id, **REPLAYS))
        assert changed.cache.divergence is not None
        assert changed.cache.divergence.cause is DivergenceCause.TOOLS_CHANGED
        same = await spine.finished(spine.ask(history, tools=(ONE, TWO), compare_to=first.response_id, **REPLAYS))
        assert same.cache.divergence is None


@pytest.mark.parametrize("flat", [False, True])
async def test_a_warm_turn_with_other_tools_is_what_a_cold_one_would_be(flat: bool) -> None:
    async with rig(flat=flat, start_engine=hashing()) as spine:
        first = spine.ask("one", sampling=GREEDY, tools=(ONE,))
        one = await spine.finished(first)
        for tools in ((ONE, TWO), (), (ONE,)):
            chained = spine.ask("two", previous_response_id=first.response_id, sampling=GREEDY, tools=tools)
            warm = (await spine.finished(chained)).message.text
            history = (user("one"), said(one.message.text), user("two"))
            async with rig(start_engine=hashing()) as other:
                cold = await other.finished(other.ask(history, sampling=GREEDY, tools=tools))
                assert warm == cold.message.text
