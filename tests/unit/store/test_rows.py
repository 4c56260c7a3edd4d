"""What is saved comes back, to its tenant, for as long as it lives."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from unit.store.turns import NOW, outcome, turn
from warmlane.conversation.messages import Message, Part, Reasoning, Role, Sampled, Text, ToolCall, ToolResult
from warmlane.conversation.turn import (
    CacheFacts,
    CacheOutcome,
    Dialect,
    Outcome,
    StopReason,
    Timings,
    TurnRequest,
    Usage,
)
from warmlane.errors import StoreUnavailable
from warmlane.store import ResponseStore, Retention, StoredTurn, TurnStatus, open_store, stored_turn
from warmlane.store.base import HELD_S
from warmlane.store.rows import to_columns, to_turn
from warmlane.store.schema import responses

TEXTS = st.text(max_size=40)
COUNTS = st.integers(0, 2**40)
PARTS: st.SearchStrategy[Part] = st.one_of(
    TEXTS.map(Text),
    TEXTS.map(Reasoning),
    st.builds(ToolCall, TEXTS, TEXTS, TEXTS),
    st.builds(ToolResult, TEXTS, TEXTS, st.booleans()),
)
SAMPLED = st.builds(Sampled, st.lists(st.integers(0, 2**31), max_size=20).map(tuple), TEXTS, TEXTS)
MESSAGES = st.builds(Message, st.sampled_from(Role), st.lists(PARTS, max_size=4).map(tuple), st.none() | SAMPLED)
OUTCOMES = st.builds(
    Outcome,
    message=MESSAGES,
    stop_reason=st.sampled_from(StopReason),
    stop_sequence=st.none() | TEXTS,
    usage=st.builds(Usage, COUNTS, COUNTS, COUNTS, COUNTS),
    cache=st.builds(CacheFacts, st.sampled_from(CacheOutcome), TEXTS, COUNTS),
    timings=st.builds(Timings, st.floats(0, 1e9), st.floats(0, 1e9), st.floats(0, 1e9)),
)
TURNS = st.builds(
    StoredTurn,
    id=TEXTS,
    tenant=TEXTS,
    model=TEXTS,
    previous_response_id=st.none() | TEXTS,
    created_at=st.floats(0, 4e9),
    expires_at=st.floats(0, 4e9),
    status=st.sampled_from(TurnStatus),
    instructions=st.none() | TEXTS,
    input=st.lists(MESSAGES, max_size=3).map(tuple),
    outcome=st.none() | OUTCOMES,
    echo=st.binary(max_size=50),
    error=st.none() | st.binary(max_size=50),
    domain=st.none() | st.binary(max_size=16),
)


@given(TURNS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_every_turn_survives_its_row(original: StoredTurn) -> None:
    engine = sa.create_engine("sqlite://")
    responses.metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(
            sa.insert(responses).values(**to_columns(original), chain="", events_bytes=0, cancelled=False)
        )
        row = connection.execute(sa.select(responses)).mappings().one()
    engine.dispose()

    assert to_turn(row) == original


async def test_a_saved_turn_comes_back_whole(store: ResponseStore) -> None:
    saved = turn("r1", said="naïve 🦆 \0")
    await store.save(saved)

    assert await store.get("r1", "ada", now=NOW) == saved


async def test_saving_an_id_again_replaces_the_row(store: ResponseStore) -> None:
    await store.save(turn("r1", said="before"))
    await store.save(turn("r1", said="after"))

    found = await store.get("r1", "ada", now=NOW)
    assert found is not None
    assert found.input[0].text == "after"


async def test_a_foreign_tenant_cannot_tell_an_id_from_an_unknown_one(store: ResponseStore) -> None:
    await store.save(turn("r1"))

    assert await store.get("r1", "bob", now=NOW) is None
    assert await store.history("r1", "bob", now=NOW) is None
    assert await store.delete("r1", "bob") is False
    assert await store.get("r1", "ada", now=NOW) is not None


async def test_a_foreign_tenant_cannot_overwrite_a_row(store: ResponseStore) -> None:
    await store.save(turn("r1"))

    with pytest.raises(StoreUnavailable):
        await store.save(turn("r1", tenant="bob", said="mine"))

    found = await store.get("r1", "ada", now=NOW)
    assert found is not None
    assert found.input[0].text == "ask r1"


async def test_a_row_lives_until_its_expiry_is_strictly_past(store: ResponseStore) -> None:
    await store.save(turn("r1", expires_at=NOW + 10))

    assert await store.get("r1", "ada", now=NOW + 10) is not None
    assert await store.get("r1", "ada", now=NOW + 10.001) is None
    assert await store.history("r1", "ada", now=NOW + 10.001) is None


async def test_delete_says_whether_there_was_a_row(store: ResponseStore) -> None:
    await store.save(turn("r1"))

    assert await store.delete("r1", "ada") is True
    assert await store.delete("r1", "ada") is False
    assert await store.get("r1", "ada", now=NOW) is None


async def test_prune_takes_the_expired_then_the_oldest(store: ResponseStore) -> None:
    for n in range(10):
        await store.save(turn(f"r{n}", created_at=NOW + n, expires_at=NOW + (5 if n == 9 else 1000)))
    row_bytes = to_columns(turn("r0"))["size_bytes"]
    assert isinstance(row_bytes, int)

    gone = await store.prune(now=NOW + 6 + HELD_S, max_bytes=3 * row_bytes)

    assert gone[0] == "r9"
    assert sorted(gone) == ["r0", "r1", "r2", "r3", "r4", "r5", "r9"]
    assert await store.get("r6", "ada", now=NOW + 50) is not None


async def test_prune_without_a_cap_keeps_what_lives(store: ResponseStore) -> None:
    await store.save(turn("r1"))

    assert await store.prune(now=NOW) == ()
    assert await store.get("r1", "ada", now=NOW) is not None


async def test_a_cancelled_save_is_whole_or_absent_and_the_store_goes_on(store: ResponseStore) -> None:
    for steps in range(12):
        saving = asyncio.create_task(store.save(turn(f"r{steps}")))
        for _ in range(steps):
            await asyncio.sleep(0)
        saving.cancel()
        await asyncio.wait([saving])
    await store.save(turn("last"))

    for n in range(12):
        found = await store.get(f"r{n}", "ada", now=NOW)
        assert found is None or found == turn(f"r{n}")
    assert await store.get("last", "ada", now=NOW) is not None


async def test_a_closed_store_is_unavailable() -> None:
    store = await open_store("memory:")
    await store.close()
    await store.close()

    with pytest.raises(StoreUnavailable, match="The response store is closed"):
        await store.get("r1", "ada", now=NOW)


async def test_close_waits_for_a_save_nobody_waits_for(tmp_path: object) -> None:
    path = f"{tmp_path}/warmlane.db"
    store = await open_store(path)
    saving = asyncio.create_task(store.save(turn("r1")))
    await asyncio.sleep(0)
    saving.cancel()
    await asyncio.wait([saving])
    await store.close()

    again = await open_store(path)
    assert await again.get("r1", "ada", now=NOW) == turn("r1")
    await again.close()


@pytest.mark.parametrize(("requested_s", "lives_s"), [(None, 604_800), (3600, 3600), (1, 60), (1e9, 7_776_000)])
def test_retention_is_seven_days_unless_asked_and_bounded(requested_s: float | None, lives_s: float) -> None:
    assert Retention().expires_at(NOW, requested_s) == NOW + lives_s


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        (StopReason.STOP, TurnStatus.COMPLETED),
        (StopReason.TOOL_CALLS, TurnStatus.COMPLETED),
        (StopReason.STOP_SEQUENCE, TurnStatus.COMPLETED),
        (StopReason.LENGTH, TurnStatus.INCOMPLETE),
    ],
)
def test_the_row_of_a_turn(reason: StopReason, status: TurnStatus) -> None:
    request = TurnRequest(
        request_id="q1",
        response_id="r2",
        dialect=Dialect.RESPONSES,
        tenant="ada",
        domain=bytes(16),
        model="m",
        input=(Message(Role.USER, (Text("hi"),)),),
        instructions="be brief",
        previous_response_id="r1",
        retention_s=120,
        echo=b"{}",
    )
    base = outcome()
    ended = Outcome(message=base.message, stop_reason=reason, usage=base.usage, cache=base.cache)

    row = stored_turn(request, ended, created_at=NOW)

    assert (row.id, row.tenant, row.previous_response_id, row.instructions) == ("r2", "ada", "r1", "be brief")
    assert (row.status, row.expires_at, row.output) == (status, NOW + 120, base.message)


async def test_the_domains_of_a_tenant_are_known(store: ResponseStore) -> None:
    for n, (tenant, domain) in enumerate([("ada", b"a"), ("ada", b"b"), ("ada", b"b"), ("ada", b""), ("bob", b"c")]):
        await store.save(msgspec.structs.replace(turn(f"r{n}", tenant=tenant), domain=domain * 16))
    assert await store.domains("ada") == {b"a" * 16, b"b" * 16}
    assert await store.domains("nobody") == frozenset()
