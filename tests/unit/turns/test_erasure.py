"""Deleting: a response, what was pruned, and everything of a tenant, down to the engine's cells."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator

import pytest
from msgspec import structs

from support.holding import HoldingEngine, HoldingStore
from support.spine import Rig, read, rig
from warmlane.conversation.events import Delta, Failed, Finished, Started, TurnEvent
from warmlane.conversation.kept import Conversation
from warmlane.conversation.turn import CacheOutcome, Dialect, TurnRequest
from warmlane.engine.client import WorkerEngine
from warmlane.engine.config import EngineConfig
from warmlane.errors import EngineDied, PreviousResponseNotFound, ResponseNotFound, StoreUnavailable, Unavailable
from warmlane.store import Erased, ResponseStore, TurnStatus, queued_turn
from warmlane.turns.archive import Erasure
from warmlane.turns.cancel import TurnCancelled

SECRET = "what only one tenant said " * 10


@pytest.fixture
async def made() -> AsyncIterator[Rig]:
    async with rig(tenants=2) as built:
        yield built


async def cached(r: Rig, text: str, **fields: object) -> int:
    """How much of a prompt a stateless turn finds warm."""
    asked = r.ask(text, dialect=Dialect.MESSAGES, store=False, **fields)
    return (await r.finished(asked)).cache.cached_tokens


async def test_everything_of_a_tenant_goes_and_nothing_of_another(made: Rig) -> None:
    kept: dict[str, str] = {}
    for tenant in ("ann", "bob"):
        salted = {"domain": made.spine.domain(tenant, "pepper"), "tenant": tenant}
        for fields in ({"tenant": tenant}, salted):
            asked = made.ask(SECRET, **fields)
            await made.finished(asked)
            await cached(made, SECRET + "and again", **fields)
        kept[tenant] = asked.response_id

    assert await made.spine.erase("ann") == Erasure(responses=2, conversations=0)

    with pytest.raises(ResponseNotFound):
        await made.spine.retrieve(kept["ann"], "ann")
    assert (await made.spine.retrieve(kept["bob"], "bob")).id == kept["bob"]
    assert [card.id for card in made.host.sessions("ann")] == []
    assert len(made.host.sessions("bob")) == 2
    for salt in (None, "pepper"):
        for tenant, found in (("ann", False), ("bob", True)):
            domain = made.spine.domain(tenant, salt)
            assert (await cached(made, SECRET, tenant=tenant, domain=domain) > len(SECRET) / 2) is found


async def test_a_tenants_running_turn_is_stopped_and_leaves_nothing(made: Rig) -> None:
    asked = made.ask("SLOW:1000 " + "x" * 500, tenant="ann")
    stream = made.start(asked)
    await anext(stream)
    reading = asyncio.create_task(read(stream))

    await made.spine.erase("ann")

    last = (await reading)[-1]
    assert isinstance(last, Failed)
    await made.idle()
    with pytest.raises(ResponseNotFound):
        await made.spine.retrieve(asked.response_id, "ann")
    assert made.host.sessions("ann") == []


async def test_a_background_turn_whose_row_is_gone_leaves_nothing(made: Rig) -> None:
    asked = made.ask("hello", background=True)
    await made.store.runs.begin(queued_turn(asked, created_at=0.0))
    await made.store.delete(asked.response_id, asked.tenant)

    assert isinstance(await made.failed(asked), TurnCancelled)
    with pytest.raises(ResponseNotFound):
        await made.spine.retrieve(asked.response_id, asked.tenant)
    assert made.host.sessions(asked.tenant) == []


async def test_an_unstored_warm_session_is_erased_as_well(made: Rig) -> None:
    asked = made.ask("hello", tenant="ann", store=False)
    await made.finished(asked)
    await made.spine.erase("ann")

    chained = made.ask("more", tenant="ann", previous_response_id=asked.response_id)
    assert isinstance(await made.failed(chained), PreviousResponseNotFound)


@pytest.mark.parametrize(
    ("said", "limit"), [("yes", None), ("yes", 1), ("", None), ("東", 1)], ids=["some", "one", "none", "part"]
)
async def test_a_response_deleted_after_its_session_has_gone_is_not_warm_any_more(
    made: Rig, said: str, limit: int | None
) -> None:
    asked = made.ask(f"{SECRET}\nEMIT:{said}", max_output_tokens=limit)
    await made.finished(asked)
    made.loads[0].registry.clear()
    await made.loads[0].registry.flush_disposals()

    await made.spine.delete(asked.response_id, "")

    assert await cached(made, SECRET) == 0


async def test_a_row_that_does_not_say_what_was_prefilled_takes_its_domain_along(made: Rig) -> None:
    asked = made.ask(SECRET)
    await made.finished(asked)
    row = await made.store.get(asked.response_id, "", now=0.0)
    assert row is not None
    assert row.outcome is not None
    older = structs.replace(row.outcome, cache=structs.replace(row.outcome.cache, prompt=b""))
    await made.store.delete(asked.response_id, "")
    await made.store.save(structs.replace(row, outcome=older))
    made.loads[0].registry.clear()
    await made.loads[0].registry.flush_disposals()

    await made.spine.delete(asked.response_id, "")

    assert await cached(made, SECRET) == 0


async def test_what_is_pruned_is_not_warm_any_more(made: Rig) -> None:
    first, second = made.ask(SECRET), made.ask("something else")
    await made.finished(first)
    await made.finished(second)

    assert await made.spine.tidy(max_bytes=10) == 1
    await made.loads[0].registry.flush_disposals()

    assert [card.id for card in made.host.sessions("")] == [second.response_id]
    chained = made.ask("more", previous_response_id=first.response_id)
    assert isinstance(await made.failed(chained), PreviousResponseNotFound)
    assert await cached(made, SECRET) < len(SECRET) / 2


async def cancelled(r: Rig, text: str, *, told: type[TurnEvent] = Delta, **fields: object) -> TurnRequest:
    """A response in the background that was cancelled once it had told such an event; its row says that."""
    asked = r.ask(text, background=True, **fields)
    await r.store.runs.begin(queued_turn(asked, created_at=0.0))
    stream = r.start(asked)
    while not isinstance(await anext(stream), told):
        pass
    assert r.spine.cancel(asked.response_id, asked.tenant)
    assert isinstance((await read(stream))[-1], Failed)
    await r.idle()
    await r.store.runs.set_status(asked.response_id, asked.tenant, TurnStatus.CANCELLED)
    return asked


SLOW_SECRET = f"{SECRET}\nSLOW:30 one two three four"


@pytest.mark.parametrize(("told", "deleted"), [(Started, True), (Delta, True), (Delta, False)])
async def test_a_cancelled_response_is_not_warm_once_it_is_deleted(
    made: Rig, told: type[TurnEvent], deleted: bool
) -> None:
    asked = await cancelled(made, SLOW_SECRET, told=told)

    if deleted:
        await made.spine.delete(asked.response_id, "")

    found = await cached(made, SECRET)
    assert (found == 0) if deleted else (found > len(SECRET) / 2)


@pytest.mark.parametrize("told", [Started, Delta])
async def test_a_running_response_is_not_warm_once_it_is_deleted(made: Rig, told: type[TurnEvent]) -> None:
    asked = made.ask(SLOW_SECRET, background=True)
    await made.store.runs.begin(queued_turn(asked, created_at=0.0))
    stream = made.start(asked)
    while not isinstance(await anext(stream), told):
        pass
    async with asyncio.TaskGroup() as both:
        both.create_task(made.spine.delete(asked.response_id, ""))
        both.create_task(read(stream))
    assert await cached(made, SECRET) == 0


async def test_a_cancelled_response_leaves_what_it_continued_warm(made: Rig) -> None:
    first = made.ask("hello")
    length = (await made.finished(first)).usage
    asked = await cancelled(made, SLOW_SECRET, previous_response_id=first.response_id)

    await made.spine.delete(asked.response_id, "")

    again = await made.finished(made.ask("more", previous_response_id=first.response_id))
    assert again.cache.outcome is CacheOutcome.HIT
    assert again.cache.cached_tokens >= length.prompt_tokens


@pytest.mark.parametrize(("created_at", "found"), [(-1.0, False), (1.0, True)], ids=["before", "elsewhere"])
async def test_a_cancelled_response_of_an_earlier_process_takes_its_domain_along(
    made: Rig, created_at: float, found: bool
) -> None:
    await cached(made, SECRET)
    row = queued_turn(made.ask("hello", background=True), created_at=created_at)
    await made.store.save(structs.replace(row, status=TurnStatus.CANCELLED))

    await made.spine.delete(row.id, "")

    assert (await cached(made, SECRET) > 0) is found


async def test_a_response_cancelled_while_it_waited_frees_nothing() -> None:
    async with rig(capacity=1) as r:
        await cached(r, SECRET)
        busy = r.start(r.ask("SLOW:1000 " + "x " * 50))
        while not isinstance(await anext(busy), Started):
            pass
        asked = r.ask("hello", background=True)
        await r.store.runs.begin(queued_turn(asked, created_at=-1.0))
        waiting = r.start(asked)
        await anext(waiting)
        r.spine.cancel(asked.response_id, "")
        assert isinstance((await read(waiting))[-1], Failed)
        busy.close()
        await r.idle()

        await r.spine.delete(asked.response_id, "")

        assert await cached(r, SECRET) > 0


@pytest.mark.parametrize("named", ["conversation", "response"])
async def test_what_a_running_turn_continues_is_not_pruned_however_old_it_is(named: str) -> None:
    stores: list[HoldingStore] = []

    def wrapped(store: ResponseStore) -> ResponseStore:
        stores.append(HoldingStore(store))
        return stores[0]

    async with rig(wrap_store=wrapped) as r:
        first = r.ask("hello")
        await r.finished(first)
        await r.store.conversations.create(Conversation(id="conv_1", tenant="", created_at=0.0, used_at=0.0))
        latest = queued_turn(r.ask("the one used last always stays"), created_at=1.0)
        await r.store.save(structs.replace(latest, status=TurnStatus.FAILED))
        in_conversation = named == "conversation"
        continued = {"conversation_id": "conv_1"} if in_conversation else {"previous_response_id": first.response_id}
        asked = r.ask("more", **continued)
        stores[0].saving.shut()
        running = asyncio.create_task(r.run(asked))
        await stores[0].saving.arrived.wait()

        await r.spine.tidy(max_bytes=1)
        stores[0].saving.open()
        assert isinstance((await running)[-1], Finished)
        await r.idle()

        transcript = await r.store.conversations.read("conv_1", "")
        chain = await r.store.history(asked.response_id, "", now=0.0)
        if in_conversation:
            assert transcript is not None
            assert [entry.message.text for entry in transcript.entries][:1] == ["more"]
            assert await r.store.get(first.response_id, "", now=0.0) is None
        else:
            assert chain is not None
            assert [turn.id for turn in chain.turns] == [first.response_id, asked.response_id]
            assert transcript is None
        await r.spine.tidy(max_bytes=1)
        assert await r.store.conversations.get("conv_1", "") is None
        assert await r.store.get(asked.response_id, "", now=0.0) is None


class HalfErasing(HoldingStore):
    """Fails once it has erased everything, the first time."""

    failed = False

    async def erase(self, tenant: str) -> Erased:
        erased = await super().erase(tenant)
        if not self.failed:
            self.failed = True
            raise StoreUnavailable("The response store is away.")
        return erased


async def test_domains_that_rows_alone_name_are_known_to_whoever_erases_again() -> None:
    told: list[frozenset[bytes]] = []

    async def erase(domains: frozenset[bytes], but_of: frozenset[str]) -> None:
        assert but_of == {"m"}  # it has its own files erased
        told.append(domains)

    async with rig(wrap_store=HalfErasing, erase_files=erase) as r:
        salted = r.spine.domain("ann", "pepper")
        row = queued_turn(r.ask(SECRET, tenant="ann", domain=salted), created_at=0.0)
        await r.store.save(structs.replace(row, status=TurnStatus.FAILED))
        with pytest.raises(StoreUnavailable):
            await r.spine.erase("ann")
        await r.spine.erase("ann")
        assert told == [frozenset({salted, r.spine.domain("ann", None)})]


async def test_an_erasure_the_store_refused_is_asked_for_again() -> None:
    stores: list[HoldingStore] = []

    def wrapped(store: ResponseStore) -> ResponseStore:
        stores.append(HoldingStore(store))
        return stores[0]

    async with rig(wrap_store=wrapped) as r:
        salted = {"tenant": "ann", "domain": r.spine.domain("ann", "pepper")}
        await cached(r, SECRET, **salted)
        stores[0].failure = StoreUnavailable("The response store is away.")
        with pytest.raises(StoreUnavailable):
            await r.spine.erase("ann")
        stores[0].failure = None
        await r.spine.erase("ann")
        assert await cached(r, SECRET, **salted) == 0


@pytest.mark.parametrize("store", [True, False])
async def test_an_erasure_an_engine_did_not_follow_is_not_called_done(store: bool) -> None:
    async with rig(start_engine=HoldingEngine.start) as r:
        salted = {"tenant": "ann", "domain": r.spine.domain("ann", "pepper"), "store": store}
        await r.finished(r.ask(SECRET, dialect=Dialect.MESSAGES, **salted))
        engine = r.binding.engine
        assert isinstance(engine, HoldingEngine)
        engine.failure = EngineDied("The worker ended.")
        with pytest.raises(Unavailable):
            await r.spine.erase("ann")
        engine.failure = None
        await r.spine.erase("ann")
        assert await cached(r, SECRET, tenant="ann", domain=salted["domain"]) == 0


async def test_an_erasure_is_done_though_the_worker_is_down() -> None:
    gate = asyncio.Event()

    async def wait(_: float) -> None:
        await gate.wait()

    async def start(config: EngineConfig) -> WorkerEngine:
        return await WorkerEngine.start(config, sleep=wait)

    async with rig(start_engine=start) as r:
        asked = r.ask(SECRET, tenant="ann")
        await r.finished(asked)
        engine = r.binding.engine
        assert isinstance(engine, WorkerEngine)
        assert engine.worker_pid is not None
        os.kill(engine.worker_pid, signal.SIGKILL)
        while engine.ready:
            await asyncio.sleep(0.005)
        assert await r.spine.erase("ann") == Erasure(responses=1, conversations=0)

        gate.set()
        await engine.wait_ready()
        assert await cached(r, SECRET, tenant="ann") == 0


async def test_files_of_models_that_are_not_loaded_are_erased_or_it_is_not_called_done() -> None:
    asked: list[frozenset[bytes]] = []

    async def erase(domains: frozenset[bytes], but_of: frozenset[str]) -> None:
        assert but_of == frozenset()
        asked.append(domains)
        if len(asked) == 1:
            raise PermissionError(13, "Permission denied")

    async with rig(resident=False, erase_files=erase) as r:
        with pytest.raises(Unavailable):
            await r.spine.erase("ann")
        await r.spine.erase("ann")
        assert asked == [frozenset({r.spine.domain("ann", None)})] * 2
