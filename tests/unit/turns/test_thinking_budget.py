"""`thinking.budget_tokens`, over the whole spine and in every family of models."""

from __future__ import annotations

import pytest

from support.spine import rig, user
from warmlane.conversation.events import ReasoningDelta, TextDelta, Validated
from warmlane.conversation.messages import Message, Reasoning, Role, Text
from warmlane.conversation.tools import TextFormat, Thinking, Tool, ToolChoice, ToolMode
from warmlane.conversation.turn import Dialect, StopReason
from warmlane.engine.protocol import ThoughtLimit
from warmlane.engine.thought import ThoughtWatch
from warmlane.prompts.formats import format_named
from warmlane.prompts.formats.families import Family, format_names
from warmlane.prompts.formats.render import written_reply

ASKED = "THINK:a long thought\nEMIT:the answer"
BUDGET = Thinking(enabled=True, budget_tokens=6)
MESSAGES: dict[str, object] = {"dialect": Dialect.MESSAGES, "store": False}
BOTH = pytest.mark.parametrize("flat", [False, True], ids=["paged", "flat"])


@BOTH
async def test_a_thought_ends_with_its_budget_and_the_answer_goes_on(flat: bool) -> None:
    async with rig(flat=flat) as spine:
        events = await spine.run(spine.ask(ASKED, thinking=BUDGET, **MESSAGES))
        await spine.idle()
        assert "".join(e.text for e in events if isinstance(e, ReasoningDelta)) == "a long"
        assert "".join(e.text for e in events if isinstance(e, TextDelta)) == "the answer"
        assert not any("budget" in w for e in events if isinstance(e, Validated) for w in e.warnings)
        outcome = events[-1].outcome  # type: ignore[union-attr]
        assert outcome.stop_reason is StopReason.STOP
        assert outcome.usage.reasoning_tokens == len("<think>a long")
        back = Message(Role.ASSISTANT, outcome.message.parts)
        after = await spine.finished(spine.ask((user(ASKED), back, user("more")), thinking=BUDGET, **MESSAGES))
        sampled = outcome.message.sampled
        assert sampled is not None
        assert after.usage.cached_tokens >= outcome.usage.prompt_tokens + len(sampled.token_ids) - 1


async def test_a_budget_that_is_not_spent_changes_nothing() -> None:
    async with rig() as spine:
        outcome = await spine.finished(spine.ask(ASKED, thinking=Thinking(budget_tokens=100), **MESSAGES))
        assert outcome.message.parts == (Reasoning("a long thought"), Text("the answer"))


async def test_every_choice_has_the_budget() -> None:
    async with rig() as spine:
        outcome = await spine.finished(spine.ask(ASKED, thinking=BUDGET, n_choices=3, **MESSAGES))
        for said in (outcome.message, *(other.message for other in outcome.others)):
            assert said.parts == (Reasoning("a long"), Text("the answer"))


async def test_what_a_reply_is_held_to_comes_behind_a_spent_budget() -> None:
    tools = (Tool(name="f"),)
    async with rig() as spine:
        asked = "THINK:a long thought\nUSE_TOOL:f {}"
        choice = ToolChoice(mode=ToolMode.REQUIRED)
        called = await spine.finished(spine.ask(asked, thinking=BUDGET, tools=tools, tool_choice=choice, **MESSAGES))
        assert called.message.reasoning == "a long"
        assert [call.name for call in called.message.tool_calls] == ["f"]
        json = "THINK:a long thought\nEMIT:{}"
        held = await spine.finished(spine.ask(json, thinking=BUDGET, text_format=TextFormat(), **MESSAGES))
        assert held.message.parts == (Reasoning("a long"), Text("{}"))


async def test_a_model_without_reasoning_has_none_to_bound() -> None:
    async with rig(output_format="plain") as spine:
        events = await spine.run(spine.ask("EMIT:x", thinking=Thinking(budget_tokens=6), **MESSAGES))
        await spine.idle()
        warnings = [w for e in events if isinstance(e, Validated) for w in e.warnings]
        assert "thinking budget: this model has no reasoning to bound" in warnings


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("name", format_names())
def test_in_every_family_a_thought_that_is_ended_is_followed_by_text(name: str, inside: bool) -> None:
    """A model that says what its family writes, a character a token, and is bounded in the middle of its thought."""
    form = format_named(name)
    assert isinstance(form, Family)
    marks = form.thought_marks(calls=True)
    if marks is None:
        return
    thought = "I think about it."
    raw = written_reply(form.writing, (Reasoning(thought), Text("The answer.")), inside=inside)
    before, after = form.writing.thought or ("", "")
    behind = raw[raw.index(thought) + len(thought) :].removeprefix(after)
    limit = ThoughtLimit(
        max_tokens=7, opens=marks.opens, closes=marks.closes, ending=tuple(map(ord, marks.ending)), inside=inside
    )
    watch, text, rest = ThoughtWatch(limit), "", raw
    while rest or watch.forced() is not None:
        forced = watch.forced()
        if forced is not None:
            token, piece, rest = forced, chr(forced), behind
        else:
            token, piece, rest = -1, rest[0], rest[1:]
        text += piece
        watch.saw(token, piece.encode(), whole=True)
    opening = before if inside else ""
    parser = form.parser((Tool(name="f"),), new_call_id=str, opening=opening)
    events = [*parser.feed(text), *parser.finish()]
    reasoning = "".join(event.text for event in events if isinstance(event, ReasoningDelta))
    assert thought.startswith(reasoning.strip())
    assert 0 < len(reasoning) < len(thought)
    assert "".join(event.text for event in events if isinstance(event, TextDelta)).strip() == "The answer."
