"""Turns with tools and reasoning, over the simulated engine and the real parsers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import msgspec
import pytest

from support.spine import Rig, rig, user
from warmlane.conversation.events import ReasoningDelta, TextDelta, ToolCallDelta, ToolCallStarted, Validated
from warmlane.conversation.messages import Message, Reasoning, Role, Text, ToolCall, ToolResult
from warmlane.conversation.tools import TextFormat, Thinking, Tool, ToolChoice, ToolMode
from warmlane.conversation.turn import CacheOutcome, Dialect, Outcome, StopReason
from warmlane.engine.config import EngineConfig
from warmlane.engine.local import LocalEngine
from warmlane.engine.protocol import EngineEvent, GenerateRequest
from warmlane.errors import InvalidRequest

TOOLS = (
    Tool(name="get_weather", description="Of a city.", parameters='{"type":"object","properties":{"city":{}}}'),
    Tool(name="get_time"),
)
CALL = 'USE_TOOL:get_weather {"city":"Bern",  "days":2}'
BOTH = f"{CALL}\nUSE_TOOL:get_time {{}}"


@pytest.fixture(params=["paged", "flat"])
async def spine(request: pytest.FixtureRequest) -> AsyncIterator[Rig]:
    async with rig(flat=request.param == "flat") as made:
        yield made


def answer(call: ToolCall, text: str = "sunny") -> Message:
    return Message(Role.TOOL, (ToolResult(call.call_id, text),))


async def test_calls_are_told_as_they_come(spine: Rig) -> None:
    events = await spine.run(spine.ask(BOTH, tools=TOOLS))
    starts = [e for e in events if isinstance(e, ToolCallStarted)]
    assert [(s.index, s.name) for s in starts] == [(0, "get_weather"), (1, "get_time")]
    assert len({s.call_id for s in starts}) == 2
    assert all(s.call_id.startswith("call_") for s in starts)
    arguments = "".join(e.arguments for e in events if isinstance(e, ToolCallDelta) and e.index == 0)
    assert json.loads(arguments) == {"city": "Bern", "days": 2}
    outcome = await spine.finished(spine.ask(BOTH, tools=TOOLS))
    assert outcome.stop_reason is StopReason.TOOL_CALLS
    assert [c.name for c in outcome.message.tool_calls] == ["get_weather", "get_time"]
    assert "<tool_call>" not in outcome.message.text


async def test_without_tools_the_markup_of_calls_is_text(spine: Rig) -> None:
    raw = '<tool_call>\n{"name":"f","arguments":{}}\n</tool_call>'
    outcome = await spine.finished(spine.ask(f"EMIT:{raw}"))
    assert outcome.message.text == raw
    assert outcome.stop_reason is StopReason.STOP


async def test_a_chained_tool_loop_costs_its_new_tokens(spine: Rig) -> None:
    first = spine.ask(f"THINK:where is Bern\nEMIT:Let me see.\n{CALL}", tools=TOOLS)
    one = await spine.finished(first)
    (call,) = one.message.tool_calls
    second = spine.ask((answer(call),), tools=TOOLS, previous_response_id=first.response_id)
    two = await spine.finished(second)
    assert two.message.text == "tool said: sunny"
    assert two.cache.outcome is CacheOutcome.HIT
    assert two.usage.cached_tokens >= one.usage.prompt_tokens + one.usage.output_tokens - 1


@pytest.mark.parametrize("from_store", [True, False])
async def test_a_stored_tool_loop_goes_on_when_nothing_is_warm(spine: Rig, from_store: bool) -> None:
    first = spine.ask(BOTH, tools=TOOLS)
    one = await spine.finished(first)
    if from_store:
        spine.registry.clear()
        await spine.registry.flush_disposals()
    results = tuple(answer(call, call.name) for call in reversed(one.message.tool_calls))
    second = spine.ask((*results, user("and?")), tools=TOOLS, previous_response_id=first.response_id)
    two = await spine.finished(second)
    assert two.message.text == "echo: and?"
    row = await spine.store.get(second.response_id, "", now=0.0)
    assert row is not None
    assert [part for message in row.input for part in message.parts] == [
        *(ToolResult(call.call_id, call.name) for call in one.message.tool_calls),
        Text("and?"),
    ]


@pytest.mark.parametrize("dialect", [Dialect.MESSAGES, Dialect.CHAT])
async def test_a_replayed_tool_loop_is_warm_though_the_client_wrote_the_json(spine: Rig, dialect: Dialect) -> None:
    asked: dict[str, object] = {"dialect": dialect, "store": False, "tools": TOOLS}
    question = user(f"EMIT:Let me see.\n{BOTH}")
    one = await spine.finished(spine.ask((question,), **asked))
    anew = tuple(
        msgspec.structs.replace(c, arguments=json.dumps(json.loads(c.arguments), sort_keys=True))
        for c in one.message.tool_calls
    )
    reply = Message(Role.ASSISTANT, (Text(one.message.text.strip()), *anew))
    history = (question, reply, *(answer(call) for call in anew))
    two = await spine.finished(spine.ask(history, **asked))
    assert two.message.text == "tool said: sunny"
    assert two.usage.cached_tokens >= one.usage.prompt_tokens + one.usage.output_tokens - 1


async def refused(spine: Rig, added: tuple[Message, ...], named: str, **changed: object) -> None:
    error = await spine.failed(spine.ask(added, tools=TOOLS, **changed))
    assert isinstance(error, InvalidRequest)
    assert named in error.message
    assert error.param == ("messages" if changed.get("dialect") else "input")


async def test_the_next_input_answers_exactly_the_open_calls(spine: Rig) -> None:
    first = spine.ask(BOTH, tools=TOOLS)
    one = await spine.finished(first)
    a, b = one.message.tool_calls
    chained = {"previous_response_id": first.response_id}
    await refused(spine, (answer(a),), b.call_id, **chained)
    await refused(spine, (user("go on"),), a.call_id, **chained)
    await refused(spine, (answer(a), answer(b), answer(b)), b.call_id, **chained)
    await refused(spine, (answer(a), answer(b), answer(ToolCall("call_x", "f", "{}"))), "call_x", **chained)
    await refused(spine, (answer(a),), a.call_id, dialect=Dialect.MESSAGES, store=False)
    assert len(spine.registry) == 1
    two = await spine.finished(spine.ask((answer(b), answer(a)), tools=TOOLS, **chained))
    assert two.cache.outcome is CacheOutcome.HIT


async def test_reasoning_is_told_apart_and_counted(spine: Rig) -> None:
    request = spine.ask("THINK:hmm\nEMIT:hello")
    events = await spine.run(request)
    assert "".join(e.text for e in events if isinstance(e, ReasoningDelta)) == "hmm"
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == "hello"
    outcome = await spine.finished(spine.ask("THINK:hmm\nEMIT:hello"))
    assert outcome.message.parts == (Reasoning("hmm"), Text("hello"))
    assert outcome.usage.reasoning_tokens == len("<think>hmm")
    assert outcome.stop_reason is StopReason.STOP


async def test_a_call_cut_by_the_limit_is_told_as_far_as_it_came(spine: Rig) -> None:
    first = spine.ask(CALL, tools=TOOLS, max_output_tokens=50)
    one = await spine.finished(first)
    assert one.stop_reason is StopReason.LENGTH
    (call,) = one.message.tool_calls
    assert '{"city":"Bern",  "days":2}'.startswith(call.arguments)
    two = await spine.finished(spine.ask("go on", tools=TOOLS, previous_response_id=first.response_id))
    assert two.message.text == "echo: go on"


async def test_a_stop_string_matches_in_text_alone_and_ends_the_engine(spine: Rig) -> None:
    long = "x" * 300
    first = spine.ask(f"THINK:a STOP b\nEMIT:hello STOP {long}", stop=("STOP",))
    one = await spine.finished(first)
    assert one.message.parts == (Reasoning("a STOP b"), Text("hello "))
    assert (one.stop_reason, one.stop_sequence) == (StopReason.STOP_SEQUENCE, "STOP")
    assert one.usage.output_tokens < 100
    two = await spine.finished(spine.ask("more", previous_response_id=first.response_id))
    assert two.message.text == "echo: more"
    assert two.cache.outcome is CacheOutcome.HIT


@pytest.mark.parametrize("dialect", list(Dialect))
async def test_a_count_of_tokens_is_what_the_turn_uses(spine: Rig, dialect: Dialect) -> None:
    call = ToolCall("call_1", "get_weather", '{"city": "Bern"}')
    history = (user("hi"), Message(Role.ASSISTANT, (Text("see"), call)), answer(call), user("so?"))
    request = spine.ask(
        history, dialect=dialect, tools=TOOLS, store=False, instructions="be brief", thinking=Thinking(enabled=True)
    )
    counted = await spine.spine.count_tokens(request)
    bare = await spine.spine.count_tokens(msgspec.structs.replace(request, tools=()))
    assert counted > bare
    assert (await spine.finished(request)).usage.prompt_tokens == counted


class Recording(LocalEngine):
    """Keeps what it was asked."""

    asked: list[GenerateRequest]

    async def generate(self, request: GenerateRequest) -> AsyncIterator[EngineEvent]:  # type: ignore[override]
        self.asked = [*getattr(self, "asked", []), request]
        async for event in super().generate(request):
            yield event


async def asked_of_engine(**changed: object) -> tuple[GenerateRequest, Outcome]:
    made: list[Recording] = []

    async def start(config: EngineConfig) -> Recording:
        made.append(await Recording.start(config))  # type: ignore[arg-type]
        return made[0]

    async with rig(start_engine=start) as spine:
        outcome = await spine.finished(spine.ask(changed.pop("text", CALL), **changed))  # type: ignore[arg-type]
        return made[0].asked[-1], outcome


async def test_what_a_reply_must_be_reaches_the_engine() -> None:
    request, _ = await asked_of_engine(tools=TOOLS)
    assert request.top_logprobs is None
    required = ToolChoice(mode=ToolMode.REQUIRED)
    request, outcome = await asked_of_engine(tools=TOOLS, tool_choice=required)
    assert request.grammar is not None
    assert outcome.stop_reason is StopReason.TOOL_CALLS
    request, _ = await asked_of_engine(text='EMIT:{"a":1}', text_format=TextFormat())
    assert request.grammar is not None
    request, outcome = await asked_of_engine(text="EMIT:hi", top_logprobs=2)
    assert request.top_logprobs == 2
    assert "".join(t.token for t in outcome.logprobs) == "hi"
    request, _ = await asked_of_engine(text="EMIT:hi")
    assert (request.grammar, request.top_logprobs) == (None, None)


async def test_what_no_grammar_can_enforce_is_said_and_not_refused(spine: Rig) -> None:
    odd = '{"type":"object","properties":{"a":{"type":"string","pattern":"(?=x)y"}}}'
    required = ToolChoice(mode=ToolMode.REQUIRED)
    request = spine.ask(CALL, tools=(*TOOLS, Tool(name="odd", parameters=odd)), tool_choice=required)
    events = await spine.run(request)
    assert isinstance(events[0], Validated)
    assert [warning.split(":")[0] for warning in events[0].warnings] == ["tools[2] (odd)"]
    assert "/properties/a/pattern" in events[0].warnings[0]
    error = await spine.failed(spine.ask(CALL, tools=(Tool(name="none", parameters="[]"),), tool_choice=required))
    assert isinstance(error, InvalidRequest)
    assert "JSON" in error.message


async def test_what_the_model_cannot_do_is_said(spine: Rig) -> None:
    """Here the model thinks whenever it likes: it cannot be kept from it, and need not be told to."""
    events = await spine.run(spine.ask("hi", thinking=Thinking(enabled=False, effort="high", budget_tokens=9)))
    assert isinstance(events[0], Validated)
    assert [warning.split(":")[0] for warning in events[0].warnings] == [
        "thinking",
        "reasoning effort",
    ]
    assert (await spine.run(spine.ask("hi", thinking=Thinking(enabled=True))))[0] == Validated()
    events = await spine.run(spine.ask("hi"))
    assert events[0] == Validated()


async def test_a_call_that_must_be_made_is_made_without_a_script(spine: Rig) -> None:
    required = ToolChoice(mode=ToolMode.REQUIRED)
    outcome = await spine.finished(spine.ask("hello", tools=TOOLS, tool_choice=required, max_output_tokens=300))
    assert outcome.stop_reason is StopReason.TOOL_CALLS
    assert outcome.message.tool_calls
    assert not outcome.message.reasoning
    thought = await spine.finished(spine.ask("THINK:hm", tools=TOOLS, tool_choice=required, max_output_tokens=300))
    assert thought.message.reasoning == "hm"
    assert thought.message.tool_calls
