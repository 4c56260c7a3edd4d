"""Several replies to one prompt, over the whole spine: one seat, one prefill, and nothing of one in another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.holding import HoldingEngine
from support.spine import Rig, read, rig, said, user
from warmlane.conversation.events import Failed, OtherChoice, Started, TextDelta, TurnEvent
from warmlane.conversation.messages import Message, Role, ToolResult
from warmlane.conversation.tools import Tool, ToolChoice, ToolMode
from warmlane.conversation.turn import Dialect, Outcome, Sampling, StopReason
from warmlane.engine.config import EngineConfig
from warmlane.engine.local import LocalEngine
from warmlane.engine.protocol import Engine, EngineEvent, GenerateRequest
from warmlane.errors import EngineFault
from warmlane.turns.choices import seeded

WARM = Sampling(temperature=1.0, seed=11)
CHAT: dict[str, object] = {"dialect": Dialect.CHAT, "store": False}


def hashing(**changed: object) -> Callable[[EngineConfig], Awaitable[Engine]]:
    """Starts an engine whose tokens are a hash of the cells seen."""

    async def start(config: EngineConfig) -> Engine:
        return await LocalEngine.start(msgspec.structs.replace(config, simulated_hash=True, **changed))

    return start


@pytest.fixture(params=["paged", "flat"])
async def spine(request: pytest.FixtureRequest) -> AsyncIterator[Rig]:
    async with rig(flat=request.param == "flat", start_engine=hashing()) as made:
        yield made


def texts(outcome: Outcome) -> list[str]:
    return [outcome.message.text, *(other.message.text for other in outcome.others)]


def told_texts(events: Sequence[TurnEvent], n: int) -> list[str]:
    """The deltas of each choice, joined."""
    told = [""] * n
    for event in events:
        delta = event.delta if isinstance(event, OtherChoice) else event
        if isinstance(delta, TextDelta):
            told[event.index if isinstance(event, OtherChoice) else 0] += delta.text
    return told


def settled(spine: Rig) -> bool:
    lane, registry = spine.lane, spine.registry
    return (lane.active, lane.waiting, lane.permits, registry.leased, registry.pending_disposals) == (0,) * 5


def test_the_seeds_of_choices_differ_and_are_always_the_same() -> None:
    for seed in (0, 1, -1, 2**63 - 1, -(2**63)):
        seeds = [seeded(Sampling(seed=seed), index).seed for index in range(16)]
        assert seeds[0] == seed
        assert len({value % 2**64 for value in seeds if value is not None}) == 16
        assert all(value is not None and 0 <= value < 2**64 for value in seeds[1:])
        neighbours = {seeded(Sampling(seed=seed + 1), index).seed for index in range(16)}
        assert not neighbours & set(seeds[1:])
    assert seeded(Sampling(), 3).seed is None
    assert seeded(Sampling(), 3, default=5) == seeded(Sampling(seed=5), 3)


async def test_each_choice_is_what_its_seed_says_alone(spine: Rig) -> None:
    outcome = await spine.finished(spine.ask("tell me", n_choices=4, sampling=WARM, **CHAT))
    replies = texts(outcome)
    assert len(set(replies)) == 4
    async with rig(start_engine=hashing()) as other:
        for index, reply in enumerate(replies):
            alone = await other.finished(other.ask("tell me", sampling=seeded(WARM, index), **CHAT))
            assert reply == alone.message.text
    again = await spine.finished(spine.ask("tell me", n_choices=4, sampling=WARM, **CHAT))
    assert texts(again) == replies


async def test_choices_without_a_seed_differ_too(spine: Rig) -> None:
    outcome = await spine.finished(spine.ask("tell me", n_choices=3, sampling=Sampling(temperature=1.0), **CHAT))
    assert len(set(texts(outcome))) == 3


async def test_the_prompt_counts_once_and_what_was_said_for_every_choice(spine: Rig) -> None:
    asked = spine.ask("tell me", n_choices=3, sampling=WARM, **CHAT)
    events = await spine.run(asked)
    await spine.idle()
    outcome = events[-1].outcome  # type: ignore[union-attr]
    started = [event for event in events if isinstance(event, Started)]
    assert len(started) == 1
    assert outcome.usage.prompt_tokens == started[0].prompt_tokens
    assert outcome.usage.cached_tokens == started[0].cached_tokens == 0
    sampled = [m.sampled for m in (outcome.message, *(other.message for other in outcome.others))]
    assert outcome.usage.output_tokens == sum(len(each.token_ids) + 1 for each in sampled)  # each with its last token
    assert told_texts(events, 3) == texts(outcome)
    stats = await spine.binding.engine.stats()  # type: ignore[attr-defined]
    if spine.paged:
        assert (stats.prompt_tokens, stats.cached_tokens) == (started[0].prompt_tokens, 0)


async def test_a_turn_of_many_choices_is_one_unit_of_the_budget() -> None:
    async with rig(capacity=2, max_waiting=0) as spine:
        many = spine.start(spine.ask("SLOW:2 " + "x" * 30, n_choices=6, **CHAT))
        reading = asyncio.create_task(read(many))
        while not spine.lane.active:
            await asyncio.sleep(0)
        assert (spine.lane.active, spine.lane.waiting, spine.lane.permits) == (1, 0, 0)
        other = await spine.run(spine.ask("EMIT:hi", **CHAT))
        assert not reading.done(), "a turn with a seat of its own does not wait for choices that have none"
        assert not isinstance(other[-1], Failed)
        events = await reading
        await spine.idle()
        assert len(set(told_texts(events, 6))) == 1
        assert settled(spine)


@pytest.mark.parametrize("flat", [False, True], ids=["paged", "flat"])
@pytest.mark.parametrize("chosen", [0, 1, 2])
async def test_a_choice_that_is_sent_back_is_replayed_as_its_tokens(flat: bool, chosen: int) -> None:
    """The template writes a call with other spaces than it was sampled with, so that its text has other tokens."""
    schema = '{"type":"object","properties":{"a":{"type":"string","maxLength":12}},"required":["a"]}'
    asked: dict[str, object] = {
        "tools": (Tool(name="look", parameters=schema),),
        "tool_choice": ToolChoice(mode=ToolMode.REQUIRED, parallel=False),
        "sampling": WARM,
        **CHAT,
    }
    async with rig(flat=flat, start_engine=hashing(), output_format="plain") as spine:
        outcome = await spine.finished(spine.ask("look", n_choices=3, **asked))
        messages = [outcome.message, *(other.message for other in outcome.others)]
        assert len({message.tool_calls[0].arguments for message in messages}) == 3
        assert [other.stop_reason for other in outcome.others] == [StopReason.TOOL_CALLS] * 2
        message = messages[chosen]
        result = Message(Role.TOOL, (ToolResult(message.tool_calls[0].call_id, "there"),))
        back = Message(Role.ASSISTANT, message.parts)
        following = await spine.finished(spine.ask((user("look"), back, result), **asked))
    assert message.sampled is not None
    held = outcome.usage.prompt_tokens + len(message.sampled.token_ids) - 1
    warm = following.usage.cached_tokens
    if chosen == 0 or not flat:
        assert warm >= held
    else:
        assert outcome.usage.prompt_tokens - 1 <= warm < held


@pytest.mark.parametrize("flat", [False, True], ids=["paged", "flat"])
async def test_a_conversation_goes_on_from_its_first_choice(flat: bool) -> None:
    async with rig(flat=flat, start_engine=hashing()) as spine:
        key: dict[str, object] = {**CHAT, "prompt_cache_key": "a-long-enough-key", "sampling": WARM}
        first = await spine.finished(spine.ask("one", n_choices=3, **key))
        history = (user("one"), said(first.message.text), user("two"))
        second = await spine.finished(spine.ask(history, **key))
        assert second.cache.reason == "hit"
        sampled = first.message.sampled
        assert sampled is not None
        assert second.usage.cached_tokens >= first.usage.prompt_tokens + len(sampled.token_ids) - 1


async def test_stop_strings_limits_and_logprobs_are_of_each_choice(spine: Rig) -> None:
    plain = texts(await spine.finished(spine.ask("tell me", n_choices=3, sampling=WARM, **CHAT)))
    stop = plain[1][3:5]
    cut = await spine.finished(spine.ask("tell me", n_choices=3, sampling=WARM, stop=(stop,), top_logprobs=2, **CHAT))
    assert texts(cut) == [text.split(stop)[0] for text in plain]
    assert cut.others[0].stop_reason is StopReason.STOP_SEQUENCE
    for text, logprobs in zip(texts(cut), [cut.logprobs, *(o.logprobs for o in cut.others)], strict=True):
        assert "".join(token.token for token in logprobs) == text
    short = await spine.finished(spine.ask("tell me", n_choices=3, sampling=WARM, max_output_tokens=4, **CHAT))
    assert texts(short) == [text[:4] for text in plain]
    assert {short.stop_reason, *(other.stop_reason for other in short.others)} == {StopReason.LENGTH}
    assert short.usage.output_tokens == 12


@pytest.mark.parametrize("flat", [False, True], ids=["paged", "flat"])
@pytest.mark.parametrize("after", [1, 4, 9, 20])
async def test_a_client_that_goes_away_ends_every_choice(flat: bool, after: int) -> None:
    async with rig(flat=flat, capacity=2) as spine:
        stream = spine.start(spine.ask("SLOW:1 " + "x" * 40, n_choices=4, **CHAT))
        events = aiter(stream)
        for _ in range(after):
            await anext(events)
        stream.close()
        await spine.idle()
        assert settled(spine)
        stats = await spine.binding.engine.stats()  # type: ignore[attr-defined]
        assert (stats.decoding_turns, stats.waiting_turns, stats.prefilling_turns) == (0, 0, 0)
        assert (stats.cells_running, stats.cells_owned) == (0, 0)


class _FailingEngine(HoldingEngine):
    """Fails the turns that go beside another's."""

    def generate(self, request: GenerateRequest) -> AsyncIterator[EngineEvent]:
        return self._broken() if request.spare else super().generate(request)

    async def _broken(self) -> AsyncIterator[EngineEvent]:
        raise EngineFault("This sequence is broken.")
        yield


async def test_a_choice_that_fails_fails_the_turn() -> None:
    async with rig(start_engine=_FailingEngine.start) as spine:
        last = (await spine.run(spine.ask("SLOW:1 " + "x" * 40, n_choices=3, **CHAT)))[-1]
        await spine.idle()
        assert isinstance(last, Failed)
        assert (type(last.error), str(last.error)) == (EngineFault, "This sequence is broken.")
        assert last.usage is not None
        assert settled(spine)


@settings(max_examples=15, deadline=None)
@given(data=st.data(), flat=st.booleans(), capacity=st.integers(2, 4), n_ctx=st.sampled_from((None, 260)))
def test_whatever_runs_beside_them_choices_say_what_they_say_alone(
    data: st.DataObject, flat: bool, capacity: int, n_ctx: int | None
) -> None:
    """Also where there are fewer cells than all of them want."""
    asked = data.draw(
        st.lists(
            st.tuples(st.integers(1, 4), st.integers(0, 2), st.sampled_from((1, 9, 25)), st.sampled_from(("a", "ab"))),
            min_size=1,
            max_size=4,
        )
    )

    async def play() -> None:
        async with rig(flat=flat, capacity=capacity, start_engine=hashing(n_ctx=n_ctx)) as spine:
            requests = [
                spine.ask(
                    text, n_choices=n, max_output_tokens=limit, sampling=Sampling(temperature=1.0, seed=seed), **CHAT
                )
                for n, seed, limit, text in asked
            ]
            running = [asyncio.create_task(spine.run(request)) for request in requests]
            for request, events in zip(requests, await asyncio.gather(*running), strict=True):
                expected = [
                    await alone(request.input[0].text, seeded(request.sampling, index), request.max_output_tokens or 0)
                    for index in range(request.n_choices)
                ]
                assert told_texts(events, request.n_choices) == expected
            await spine.idle()
            assert settled(spine)

    asyncio.run(play())


_ALONE: dict[tuple[str, Sampling, int], str] = {}


async def alone(text: str, sampling: Sampling, limit: int) -> str:
    key = (text, sampling, limit)
    if key not in _ALONE:
        async with rig(start_engine=hashing()) as spine:
            asked = spine.ask(text, sampling=sampling, max_output_tokens=limit, **CHAT)
            _ALONE[key] = (await spine.finished(asked)).message.text
    return _ALONE[key]
