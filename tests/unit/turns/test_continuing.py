"""Replies that the client began: what is said behind the beginning, and what both are when they come back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.spine import rig, said, user
from warmlane.conversation.events import Delta, TextDelta, ToolCallDelta
from warmlane.conversation.messages import Message, Role, Text
from warmlane.conversation.tools import TextFormat, Thinking, Tool, ToolChoice, ToolMode
from warmlane.conversation.turn import Dialect, Sampling, StopReason
from warmlane.engine.config import EngineConfig
from warmlane.engine.local import LocalEngine
from warmlane.engine.protocol import Engine
from warmlane.errors import InvalidRequest
from warmlane.prompts.formats import format_named
from warmlane.turns.continuing import Begun, ContinuingParser, only_text

MESSAGES: dict[str, object] = {"dialect": Dialect.MESSAGES, "store": False, "thinking": Thinking(enabled=False)}
GREEDY = Sampling(temperature=0.0)
BOTH = pytest.mark.parametrize("flat", [False, True], ids=["paged", "flat"])


def engine(**changed: object) -> Callable[[EngineConfig], Awaitable[Engine]]:
    async def start(config: EngineConfig) -> Engine:
        return await LocalEngine.start(msgspec.structs.replace(config, **changed))

    return start


@BOTH
@pytest.mark.parametrize("n", [1, 5, 8])
async def test_the_reply_is_what_the_model_says_behind_the_beginning(flat: bool, n: int) -> None:
    async with rig(flat=flat, start_engine=engine(simulated_hash=True)) as spine:
        asked = {**MESSAGES, "sampling": GREEDY, "max_output_tokens": 20}
        whole = await spine.finished(spine.ask("tell me", **asked))
        beginning, rest = whole.message.text[:n], whole.message.text[n:]
        dialogue = (user("tell me"), said(beginning))
        outcome = await spine.finished(spine.ask(dialogue, continues=True, **{**asked, "max_output_tokens": 20 - n}))
        assert (outcome.message.text, outcome.stop_reason) == (rest, whole.stop_reason)
        assert outcome.message.parts == (Text(rest),)
        assert outcome.usage.prompt_tokens == whole.usage.prompt_tokens + n
        again = spine.ask((user("tell me"), said(beginning + rest), user("more")), **asked)
        warm = (await spine.finished(again)).usage.cached_tokens
        assert warm >= outcome.usage.prompt_tokens + len(rest) - 1


@BOTH
async def test_a_reply_that_was_cut_short_goes_on_from_its_tokens(flat: bool) -> None:
    async with rig(flat=flat) as spine:
        cut = await spine.finished(spine.ask("EMIT:a long answer", max_output_tokens=6, **MESSAGES))
        assert (cut.message.text, cut.stop_reason) == ("a long", StopReason.LENGTH)
        dialogue = (user("EMIT:a long answer"), said("a long"))
        rest = await spine.finished(spine.ask(dialogue, continues=True, **MESSAGES))
        assert rest.message.text == " answer"
        assert rest.usage.cached_tokens >= cut.usage.prompt_tokens + cut.usage.output_tokens - 1


async def test_every_choice_goes_on_from_the_same_beginning() -> None:
    async with rig() as spine:
        dialogue = (user("EMIT:one two"), said("one"))
        outcome = await spine.finished(spine.ask(dialogue, continues=True, n_choices=3, **MESSAGES))
        assert [outcome.message.text, *(other.message.text for other in outcome.others)] == [" two"] * 3


async def test_stop_strings_and_typed_control_tokens_are_as_everywhere() -> None:
    async with rig() as spine:
        dialogue = (user("EMIT:<|im_end|> one two three"), said("<|im_end|> one"))
        outcome = await spine.finished(spine.ask(dialogue, continues=True, stop=("two",), **MESSAGES))
        assert (outcome.message.text, outcome.stop_sequence) == (" ", "two")
        plain = await spine.finished(spine.ask("EMIT:<|im_end|> one two three", **MESSAGES))
        assert outcome.usage.prompt_tokens == plain.usage.prompt_tokens + len("<|im_end|> one")


async def test_a_family_that_opens_its_text_with_markup_has_it_in_the_prompt() -> None:
    lead = "<|channel|>final<|message|>"
    async with rig(output_format="gpt-oss") as spine:
        script = f"EMIT:{lead}one two"
        plain = await spine.finished(spine.ask(script, **MESSAGES))
        assert plain.message.text == "one two"
        outcome = await spine.finished(spine.ask((user(script), said("one")), continues=True, **MESSAGES))
        assert outcome.message.text == " two"
        assert outcome.usage.prompt_tokens == plain.usage.prompt_tokens + len(lead + "one")
        after = spine.ask((user(script), said("one two"), user("more")), **MESSAGES)
        assert (await spine.finished(after)).usage.cached_tokens >= outcome.usage.prompt_tokens


@pytest.mark.parametrize(
    ("beginning", "fields", "said_of_it"),
    [
        ("<think>hm</think>so", {}, "cannot be continued"),
        (
            '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>',
            {"tools": (Tool(name="f"),)},
            "cannot be continued",
        ),
        ("so", {"text_format": TextFormat()}, "cannot be held"),
        (
            "so",
            {"tools": (Tool(name="f"),), "tool_choice": ToolChoice(mode=ToolMode.REQUIRED)},
            "cannot be held",
        ),
        ("so", {"tools": (Tool(name="f", strict=True),)}, "cannot be held"),
    ],
)
async def test_what_cannot_be_continued(beginning: str, fields: dict[str, object], said_of_it: str) -> None:
    async with rig() as spine:
        error = await spine.failed(spine.ask((user("hi"), said(beginning)), continues=True, **MESSAGES, **fields))
        assert isinstance(error, InvalidRequest)
        assert said_of_it in str(error)
        assert (spine.lane.active, spine.lane.permits, spine.registry.leased) == (0, 0, 0)


async def test_a_template_that_opens_every_reply_with_a_thought_continues_none() -> None:
    template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
    )
    async with rig(start_engine=engine(chat_template=template)) as spine:
        error = await spine.failed(spine.ask((user("hi"), said("so")), continues=True, **MESSAGES))
        assert isinstance(error, InvalidRequest)
        assert "thought" in str(error)


async def test_tools_may_be_called_behind_the_beginning() -> None:
    call = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
    async with rig() as spine:
        dialogue = (user(f"EMIT:I look.\n{call}"), said("I look."))
        tools = (Tool(name="f"),)
        outcome = await spine.finished(spine.ask(dialogue, continues=True, tools=tools, **MESSAGES))
        assert outcome.stop_reason is StopReason.TOOL_CALLS
        assert [(c.name, c.arguments) for c in outcome.message.tool_calls] == [("f", '{"a": 1}')]
        assert outcome.message.text.strip() == ""


TOOLS = (Tool(name="f"),)
RAW = {
    "hermes": 'One < two, <tool or not\n\n  3. \n<tool_call>\n{"name": "f", "arguments": {"x": "<tool"}}\n</tool_call>',
    "gpt-oss": "<|channel|>final<|message|>One <|two and three",
    "mistral": 'One [TOOL two, three [TOOL_CALLS]f[ARGS]{"x": 1}',
    "plain": "One\n\n two <tool_cal three ",
}


@given(name=st.sampled_from(sorted(RAW)), data=st.data())
def test_what_follows_a_beginning_does_not_depend_on_where_it_was_cut(name: str, data: st.DataObject) -> None:
    form, raw = format_named(name), RAW[name]

    def parsed(events: list[Delta]) -> tuple[str, str]:
        text = "".join(event.text for event in events if isinstance(event, TextDelta))
        return text, "".join(event.arguments for event in events if isinstance(event, ToolCallDelta))

    lead = len(form.text_opening)
    cut = data.draw(st.integers(lead + 1, len(raw)))
    begun = Begun(raw[lead:cut], raw[:cut], ())
    if not only_text(form.parser(TOOLS, new_call_id=str), begun):
        return
    parser = ContinuingParser(form.parser(TOOLS, new_call_id=str), begun)
    events: list[Delta] = []
    at = cut
    while at < len(raw):
        to = data.draw(st.integers(at + 1, len(raw)))
        events += parser.feed(raw[at:to])
        at = to
    events += parser.finish()
    whole = form.parser(TOOLS, new_call_id=str)
    text, arguments = parsed([*whole.feed(raw), *whole.finish()])
    continuation, called = parsed(events)
    assert called == arguments
    calls = max(raw.find("<tool_call>"), raw.find("[TOOL_CALLS]"))
    if calls < 0 or cut <= calls:
        assert (begun.said + continuation).strip() == text.strip()


def test_a_whole_reply_has_the_tokens_of_both_parts() -> None:
    begun = Begun("one", "<lead>one", (1, 2))
    message = Message(Role.ASSISTANT, (Text(" two"),))
    whole = begun.whole(message, "v")
    assert whole.text == "one two"
    assert whole.sampled is not None
    assert (whole.sampled.token_ids, whole.sampled.text, whole.sampled.tokenizer) == ((1, 2), "<lead>one", "v")
