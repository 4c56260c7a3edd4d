"""The order of a turn, over the simulated engine in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from support.spine import Rig, read, rig, said, user
from warmlane.conversation.events import Failed, Finished, Started, TextDelta, Validated
from warmlane.conversation.turn import CacheOutcome, Dialect, StopReason
from warmlane.errors import ContextOverflow, EngineFault, PreviousResponseNotFound, QueueFull


@pytest.fixture(params=["paged", "flat"])
async def spine(request: pytest.FixtureRequest) -> AsyncIterator[Rig]:
    async with rig(flat=request.param == "flat") as made:
        yield made


async def test_events_come_in_order_and_deltas_sum_to_the_message(spine: Rig) -> None:
    events = await spine.run(spine.ask("hello"))
    kinds = [type(e) for e in events]
    assert kinds[:2] == [Validated, Started]
    assert set(kinds[2:-1]) == {TextDelta}
    assert isinstance(events[-1], Finished)
    assert (
        "".join(e.text for e in events if isinstance(e, TextDelta)) == events[-1].outcome.message.text == "echo: hello"
    )


async def test_a_chained_turn_hits_and_has_everything_cached(spine: Rig) -> None:
    first = spine.ask("hello")
    one = await spine.finished(first)
    two = await spine.finished(spine.ask("more", previous_response_id=first.response_id))
    assert two.cache.outcome is CacheOutcome.HIT
    assert two.usage.cached_tokens >= one.usage.prompt_tokens + one.usage.output_tokens - 1
    assert two.message.text == "echo: more"


@pytest.mark.parametrize("dialect", [Dialect.MESSAGES, Dialect.CHAT])
async def test_a_replayed_history_is_warm(spine: Rig, dialect: Dialect) -> None:
    one = await spine.finished(spine.ask("hello", dialect=dialect, store=False))
    history = (user("hello"), said(one.message.text), user("more"))
    two = await spine.finished(spine.ask(history, dialect=dialect, store=False))
    assert two.usage.cached_tokens >= one.usage.prompt_tokens + one.usage.output_tokens - 1
    assert two.cache.outcome is (CacheOutcome.PREFIX_HIT if spine.paged else CacheOutcome.HIT)


async def test_a_cache_key_leases_the_session_for_chat(spine: Rig) -> None:
    keyed = {"dialect": Dialect.CHAT, "store": False, "prompt_cache_key": "a-long-enough-key"}
    one = await spine.finished(spine.ask("hello", **keyed))
    history = (user("hello"), said(one.message.text), user("more"))
    two = await spine.finished(spine.ask(history, **keyed))
    assert two.cache.outcome is CacheOutcome.HIT


async def test_the_row_is_there_when_the_terminal_event_is(spine: Rig) -> None:
    request = spine.ask("hello")
    stream = spine.start(request)
    async for event in stream:
        if isinstance(event, Finished):
            row = await spine.store.get(request.response_id, "", now=0.0)
            assert row is not None
            assert row.output.text == "echo: hello"
            assert spine.registry.peek(request.response_id, tenant="", domain=request.domain) is not None
    stream.accept()
    stream.close()


async def test_a_chain_is_read_from_the_store_when_nothing_is_warm(spine: Rig) -> None:
    first = spine.ask("hello")
    await spine.finished(first)
    spine.registry.clear()
    await spine.registry.flush_disposals()
    two = await spine.finished(spine.ask("more", previous_response_id=first.response_id))
    assert two.message.text == "echo: more"
    assert two.cache.reason == "evicted"


async def test_an_unstored_response_chains_while_warm_only(spine: Rig) -> None:
    first = spine.ask("hello", store=False)
    await spine.finished(first)
    second = spine.ask("more", previous_response_id=first.response_id, store=False)
    assert (await spine.finished(second)).cache.outcome is CacheOutcome.HIT
    spine.registry.clear()
    events = await spine.run(spine.ask("x", previous_response_id=second.response_id))
    assert isinstance(events[-1], Failed)
    assert isinstance(events[-1].error, PreviousResponseNotFound)


async def test_errors_of_the_request_come_before_validated_and_lease_nothing(spine: Rig) -> None:
    warm = spine.ask("hello")
    await spine.finished(warm)
    unknown = await spine.run(spine.ask("x", previous_response_id="resp_unknown"))
    too_long = await spine.run(spine.ask("x" * 40_000))
    assert [type(e) for e in unknown] == [type(e) for e in too_long] == [Failed]
    assert isinstance(too_long[0], Failed)
    assert isinstance(too_long[0].error, ContextOverflow)
    await spine.idle()
    assert len(spine.registry) == 1


async def test_a_foreign_tenant_is_told_what_an_unknown_id_is(spine: Rig) -> None:
    mine = spine.ask("hello", tenant="a")
    await spine.finished(mine)
    theirs = await spine.run(spine.ask("x", tenant="b", previous_response_id=mine.response_id))
    assert isinstance(theirs[-1], Failed)
    assert str(theirs[-1].error) == str(PreviousResponseNotFound(mine.response_id))
    assert len(spine.registry) == 1


async def test_length_is_a_success_that_can_be_chained(spine: Rig) -> None:
    first = spine.ask("hello", max_output_tokens=4)
    one = await spine.finished(first)
    assert one.stop_reason is StopReason.LENGTH
    assert one.message.text == "echo"
    two = await spine.finished(spine.ask("more", previous_response_id=first.response_id))
    assert two.usage.cached_tokens >= one.usage.prompt_tokens + 3


async def test_an_engine_fault_ends_the_turn_once_and_the_next_one_is_served(spine: Rig) -> None:
    events = await spine.run(spine.ask("FAIL:3"))
    assert isinstance(events[-1], Failed)
    assert isinstance(events[-1].error, EngineFault)
    await spine.idle()
    assert (await spine.finished(spine.ask("hello"))).message.text == "echo: hello"


async def test_a_disconnect_while_it_runs_frees_everything_and_stores_nothing(spine: Rig) -> None:
    request = spine.ask("SLOW:20 " + "x" * 200)
    stream = spine.start(request)
    async for event in stream:
        if isinstance(event, TextDelta):
            break
    stream.close()
    await spine.idle()
    assert await spine.store.get(request.response_id, "", now=0.0) is None
    assert len(spine.registry) == 0


async def test_an_interrupted_turn_is_followed_by_a_warm_one(spine: Rig) -> None:
    first = spine.ask("hello")
    one = await spine.finished(first)
    interrupted = spine.ask("SLOW:20 " + "x" * 200, previous_response_id=first.response_id)
    stream = spine.start(interrupted)
    async for event in stream:
        if isinstance(event, TextDelta):
            break
    stream.close()
    await spine.idle()
    two = await spine.finished(spine.ask("instead", previous_response_id=first.response_id))
    assert two.cache.outcome is CacheOutcome.HIT
    assert two.usage.cached_tokens >= one.usage.prompt_tokens + one.usage.output_tokens - 1


async def test_a_disconnect_after_the_commit_keeps_the_row_and_drops_the_entry(spine: Rig) -> None:
    request = spine.ask("hello")
    stream = spine.start(request)
    await read(stream, accept=False)
    await spine.idle()
    assert await spine.store.get(request.response_id, "", now=0.0) is not None
    assert len(spine.registry) == 0


async def test_a_client_that_leaves_while_waiting_frees_its_unit_and_evicts_nothing(spine: Rig) -> None:
    warm = spine.ask("hello")
    await spine.finished(warm)
    lane = spine.lane
    running = [spine.start(spine.ask("SLOW:20 " + "x" * 100)) for _ in range(lane.capacity)]
    while lane.active < lane.capacity:
        await asyncio.sleep(0)
    before = len(spine.registry)
    waiter = spine.start(spine.ask("late"))
    while not lane.waiting:
        await asyncio.sleep(0)
    waiter.close()
    while lane.waiting:
        await asyncio.sleep(0)
    assert len(spine.registry) == before
    for stream in running:
        stream.close()
    await spine.idle()
    assert (lane.active, lane.waiting, lane.permits) == (0, 0, 0)


async def test_a_full_queue_refuses_at_once(spine: Rig) -> None:
    lane = spine.lane
    assert lane.limit is not None
    permits = [spine.spine.reserve("m", "") for _ in range(lane.capacity + lane.limit)]
    with pytest.raises(QueueFull):
        spine.spine.reserve("m", "")
    for permit in permits:
        permit.release()
    assert (lane.active, lane.waiting, lane.permits) == (0, 0, 0)


async def test_two_chained_to_one_id_at_once_both_answer_and_one_leases(spine: Rig) -> None:
    first = spine.ask("hello")
    await spine.finished(first)
    both = [spine.ask(f"more {i}", previous_response_id=first.response_id) for i in range(2)]
    outcomes = await asyncio.gather(*(spine.finished(r) for r in both))
    assert [o.message.text for o in outcomes] == ["echo: more 0", "echo: more 1"]
    assert sorted(o.cache.outcome is CacheOutcome.HIT for o in outcomes) == [False, True]


async def test_count_tokens_is_what_the_turn_uses(spine: Rig) -> None:
    request = spine.ask("hello <|im_end|> wörld", instructions="be brief")
    counted = await spine.spine.count_tokens(request)
    assert (await spine.finished(request)).usage.prompt_tokens == counted
