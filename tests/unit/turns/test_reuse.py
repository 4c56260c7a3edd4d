"""What a turn reuses, over the whole spine: never the wrong history, and a reason where it is little."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec
import pytest

from support.clock import VirtualClock
from support.spine import Rig, rig, said, user
from warmlane.conversation.messages import Message, Role, Text
from warmlane.conversation.turn import CacheOutcome, Dialect, DivergenceCause, Outcome, Pin, Sampling
from warmlane.engine.config import EngineConfig
from warmlane.engine.local import LocalEngine
from warmlane.engine.protocol import Engine

GREEDY = Sampling(temperature=0.0)
LONG = "a long story " * 80


def small(**settings: object) -> Callable[[EngineConfig], Awaitable[Engine]]:
    """Starts a simulated engine with these settings."""

    async def start(config: EngineConfig) -> Engine:
        return await LocalEngine.start(msgspec.structs.replace(config, **settings))

    return start


@pytest.fixture(params=["paged", "flat"])
async def hashing(request: pytest.FixtureRequest) -> AsyncIterator[Rig]:
    """Its tokens are a hash of the cells seen: an answer tells whether it was given to the right history."""
    async with rig(flat=request.param == "flat", start_engine=small(simulated_hash=True)) as made:
        yield made


async def cold_answer(messages: tuple[Message, ...]) -> str:
    async with rig(start_engine=small(simulated_hash=True)) as other:
        return (await other.finished(other.ask(messages, sampling=GREEDY))).message.text


async def test_an_older_id_continues_from_there_and_not_from_what_came_after(hashing: Rig) -> None:
    first = hashing.ask("one", sampling=GREEDY)
    one = await hashing.finished(first)
    answers = []
    for question in ("two", "another two"):
        chained = hashing.ask(question, previous_response_id=first.response_id, sampling=GREEDY)
        answers.append((await hashing.finished(chained)).message.text)
    for question, answer in zip(("two", "another two"), answers, strict=True):
        assert answer == await cold_answer((user("one"), said(one.message.text), user(question)))


@pytest.mark.parametrize("dialect", [Dialect.MESSAGES, Dialect.CHAT])
async def test_a_history_that_was_changed_is_answered_as_it_is(hashing: Rig, dialect: Dialect) -> None:
    asked: dict[str, object] = {"dialect": dialect, "store": False, "sampling": GREEDY}
    if dialect is Dialect.CHAT:
        asked["prompt_cache_key"] = "a-long-enough-key"
    one = await hashing.finished(hashing.ask("one", **asked))
    for history in (
        (user("one"), said(one.message.text), user("two")),
        (user("one"), said("something else"), user("two")),
        (user("uno"), said(one.message.text), user("two")),
        (user("two"),),
    ):
        assert (await hashing.finished(hashing.ask(history, **asked))).message.text == await cold_answer(history)


async def flood(spine: Rig) -> None:
    """Strangers come until the cells hold nothing else."""
    for n in range(4):
        await spine.finished(spine.ask(f"{n} " + LONG, dialect=Dialect.MESSAGES, store=False, max_output_tokens=1))


async def evicted_turn(spine: Rig, *, dialect: Dialect) -> tuple[Outcome, Outcome]:
    """A turn, strangers, and the turn that goes on from it."""
    asked: dict[str, object] = {"dialect": dialect, "store": dialect is Dialect.RESPONSES}
    first = spine.ask("hello " + LONG, max_output_tokens=20, **asked)
    one = await spine.finished(first)
    await flood(spine)
    if dialect is Dialect.RESPONSES:
        return one, await spine.finished(spine.ask("more", previous_response_id=first.response_id, **asked))
    replayed = (*first.input, said(one.message.text), user("more"))
    return one, await spine.finished(spine.ask(replayed, compare_to=first.response_id, **asked))


@pytest.mark.parametrize("ram_bytes", [0, 1 << 24], ids=["nowhere", "in-memory"])
@pytest.mark.parametrize("dialect", list(Dialect))
async def test_a_turn_whose_cells_were_given_up_says_so(dialect: Dialect, ram_bytes: int) -> None:
    """Or it has them restored, where there is room for what left the cells."""
    async with rig(start_engine=small(n_ctx=2048, ram_cache_bytes=ram_bytes)) as spine:
        one, two = await evicted_turn(spine, dialect=dialect)
        if ram_bytes:
            assert two.usage.cached_tokens >= one.usage.prompt_tokens + one.usage.output_tokens - 1
            assert two.cache.reason != "evicted"
        else:
            assert two.usage.cached_tokens < two.usage.prompt_tokens / 2
            assert two.cache.reason == "evicted"


@pytest.mark.parametrize("named", [False, True], ids=["unnamed", "named"])
@pytest.mark.parametrize("dialect", list(Dialect))
async def test_where_only_the_shared_beginning_is_left_the_rest_was_evicted(dialect: Dialect, named: bool) -> None:
    """Most of the prompt is cached, and what was lost of it is neither fresh nor due to another's text."""
    rules = Message(Role.SYSTEM, (Text("The rules: " + "be kind " * 110),))
    asked: dict[str, object] = {"dialect": dialect, "store": False, "max_output_tokens": 20}
    async with rig(start_engine=small(n_ctx=2048, ram_cache_bytes=0)) as spine:
        first = spine.ask((rules, user("hello " + LONG[:600])), **asked)
        one = await spine.finished(first)
        for n in range(2):
            await spine.finished(spine.ask((rules, user(f"{n} " + LONG[:900])), **asked))
        replayed = (*first.input, said(one.message.text), user("more"))
        again = spine.ask(replayed, compare_to=first.response_id if named else None, **asked)
        two = await spine.finished(again)
    known = one.usage.prompt_tokens + one.usage.output_tokens
    assert two.usage.prompt_tokens / 2 < two.usage.cached_tokens < known - 500
    assert two.cache.reason == "evicted"
    assert two.cache.divergence is not None
    assert two.cache.divergence.cause is DivergenceCause.EVICTED
    assert known <= two.cache.divergence.offset <= known + len("<|im_end|>")
    assert two.cache.divergence.missed_tokens == two.cache.divergence.offset - two.usage.cached_tokens
    assert two.cache.divergence.before == two.cache.divergence.now == ""


async def test_a_little_less_than_was_known_is_not_called_evicted() -> None:
    """What stands in front of every dialogue goes as well; that tells nothing of this one."""
    async with rig(start_engine=small(n_ctx=2048, ram_cache_bytes=0)) as spine:
        asked: dict[str, object] = {"dialect": Dialect.CHAT, "store": False, "max_output_tokens": 1}
        for beginning, reason in (("x" * 20, "fresh"), ("y" * 40, "evicted")):
            await spine.finished(spine.ask(beginning + "one", **asked))
            await flood(spine)
            assert (await spine.finished(spine.ask(beginning + "two" * 9, **asked))).cache.reason == reason


async def test_what_was_never_asked_before_is_fresh_and_another_salts_prompts_do_not_count() -> None:
    async with rig(start_engine=small(n_ctx=2048, ram_cache_bytes=0)) as spine:
        asked: dict[str, object] = {"dialect": Dialect.MESSAGES, "store": False, "max_output_tokens": 1}
        await spine.finished(spine.ask("hello " + LONG, **asked))
        other = spine.spine.domain("", "another salt")
        assert (await spine.finished(spine.ask("hello " + LONG, domain=other, **asked))).cache.reason == "fresh"
        assert (await spine.finished(spine.ask("unlike " + LONG, **asked))).cache.reason == "fresh"
        await flood(spine)
        assert (await spine.finished(spine.ask("hello " + LONG, domain=other, **asked))).cache.reason == "evicted"


async def test_after_its_time_a_session_is_expired_and_an_unknown_one_not_found() -> None:
    clock = VirtualClock()
    async with rig(clock=clock) as spine:
        first = spine.ask("hello")
        await spine.finished(first)
        clock.advance(1801)
        late = await spine.finished(spine.ask("more", previous_response_id=first.response_id))
        assert (late.cache.reason, late.message.text) == ("expired", "echo: more")
        assert late.cache.outcome is CacheOutcome.PREFIX_HIT
        unknown = await spine.finished(spine.ask("hello", compare_to="resp_unknown"))
        assert unknown.cache.divergence is not None
        assert unknown.cache.divergence.cause is DivergenceCause.NOT_FOUND


async def test_a_system_prompt_that_is_pinned_outlives_a_burst_of_one_off_requests() -> None:
    """A third of the cells, and strangers in all of them: without the pin nothing of it is left."""
    system = Message(Role.SYSTEM, (Text("The rules: " + "be kind " * 80),))
    asked: dict[str, object] = {"dialect": Dialect.MESSAGES, "store": False, "max_output_tokens": 1}
    for pins, kept in (((), False), ((Pin(1, 300.0),), True)):
        async with rig(start_engine=small(n_ctx=2000, ram_cache_bytes=0)) as spine:
            await spine.finished(spine.ask((system, user("one")), pins=pins, **asked))
            await flood(spine)
            again = await spine.finished(spine.ask((system, user("two")), **asked))
            assert (again.usage.cached_tokens > 640) is kept
            assert again.usage.cached_tokens < again.usage.prompt_tokens
