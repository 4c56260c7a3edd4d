"""One conversation: single flight, commit and rollback, owners."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from support.owner_engine import DEFAULTS, OwnerEngine
from support.turns import Desk, assistant, ticks, user
from warmlane.conversation.turn import Sampling
from warmlane.engine.protocol import EngineEvent, SamplingParams
from warmlane.errors import EngineFault, SessionBusy, SessionDisposed, SessionError
from warmlane.sessions import ChatSession, SessionDefaults, resolve_sampling

DOMAIN = bytes(16)


def session_of(engine: OwnerEngine) -> ChatSession:
    return ChatSession(engine, domain=DOMAIN, defaults=DEFAULTS)


async def run(session: ChatSession, prompt: tuple[int, ...] = (1, 2, 3)) -> list[EngineEvent]:
    async with aclosing(session.generate(prompt)) as events:
        return [event async for event in events]


async def test_a_turn_is_generate_and_commit() -> None:
    session = session_of(OwnerEngine())
    await run(session)
    session.commit((user("a"), assistant("b")), 4)
    assert (session.history, session.turns, session.tokens) == ((user("a"), assistant("b")), 1, 4)


def test_client_values_win_field_by_field() -> None:
    defaults = SamplingParams(temperature=0.5, top_k=7, seed=3)
    resolved = resolve_sampling(Sampling(temperature=0.0, min_p=0.2), defaults)
    assert resolved == SamplingParams(temperature=0.0, top_k=7, seed=3, min_p=0.2)
    assert resolve_sampling(Sampling(), defaults) is defaults


@pytest.mark.parametrize(("client", "limit"), [(None, 100), (10, 10), (1000, 100)])
async def test_the_limit_only_lowers(client: int | None, limit: int) -> None:
    engine = OwnerEngine()
    async with aclosing(session_of(engine).generate((1,), max_output_tokens=client)) as events:
        async for _ in events:
            pass
    assert engine.requests[0].max_tokens == limit


async def test_changed_defaults_affect_only_later_sessions() -> None:
    desk = Desk()
    before = desk.registry.lease(desk.query("a")).session
    desk.registry.defaults = SessionDefaults(sampling=SamplingParams(temperature=0.1), max_output_tokens=5)
    after = desk.registry.lease(desk.query("b")).session
    assert before.defaults == DEFAULTS
    assert after.defaults.max_output_tokens == 5


async def test_an_overlapping_call_is_busy() -> None:
    engine = OwnerEngine()
    engine.hold = {"generate"}
    session = session_of(engine)
    task = asyncio.create_task(run(session))
    await ticks()
    for call in (run(session), session.reset(), session.dispose(), session.rollback()):
        with pytest.raises(SessionBusy):
            await call
    with pytest.raises(SessionBusy):
        session.commit((), 0)
    engine.held[0].succeed()
    await task
    session.commit((), 4)


async def test_prime_only_before_the_first_turn() -> None:
    session = session_of(OwnerEngine())
    session.prime((user("a"),))
    assert session.history == (user("a"),)
    await run(session)
    with pytest.raises(SessionError):
        session.prime(())
    session.commit((), 4)
    with pytest.raises(SessionError):
        session.prime(())


async def test_rebase_only_on_a_leased_session() -> None:
    with pytest.raises(SessionError, match="leased"):
        session_of(OwnerEngine()).rebase(())
    desk = Desk()
    lease, _ = await desk.turn(desk.query("a"))
    with pytest.raises(SessionError, match="went back"):
        lease.session.rebase(())
    again = desk.registry.lease(desk.query("b", previous="a"))
    again.session.rebase((user("x"),))
    assert again.session.history == (user("x"),)


async def test_the_registry_keeps_a_session_from_its_former_holder() -> None:
    desk = Desk()
    lease, _ = await desk.turn(desk.query("a"))
    with pytest.raises(SessionError, match="went back"):
        await run(lease.session)


async def test_the_first_call_fixes_the_owner_and_the_domain_stays() -> None:
    engine = OwnerEngine()
    session = session_of(engine)
    assert session.owner is None
    for _ in range(2):
        await run(session)
        session.commit((), 4)
    assert {request.owner for request in engine.requests} == {session.owner}
    assert {request.domain for request in engine.requests} == {DOMAIN}


async def test_an_owner_of_a_dead_worker_is_replaced_without_a_release() -> None:
    engine = OwnerEngine()
    session = session_of(engine)
    await run(session)
    session.commit((), 4)
    first = session.owner
    engine.restart()
    await run(session)
    session.commit((), 4)
    assert session.owner != first
    assert session.owners == (session.owner,)
    await session.dispose()
    assert ("release", first) not in engine.log


async def test_commit_needs_a_turn_the_engine_ended() -> None:
    engine = OwnerEngine()
    session = session_of(engine)
    with pytest.raises(SessionError):
        session.commit((), 0)
    async with aclosing(session.generate((1, 2))) as events:
        await anext(events)
    with pytest.raises(SessionError):
        session.commit((), 0)
    with pytest.raises(SessionError, match="roll back"):
        await run(session)


async def test_rollback_truncates_to_the_length_before_the_turn() -> None:
    engine = OwnerEngine()
    session = session_of(engine)
    await run(session, (1, 2, 3))
    session.commit((user("a"),), 4)
    engine.failing = {"generate"}
    with pytest.raises(EngineFault):
        await run(session, (1, 2, 3, 4, 5, 6))
    engine.failing = set()
    assert session.owner is not None
    assert engine.cells[session.owner] == 6
    assert await session.rollback()
    assert engine.cells[session.owner] == 4
    assert (session.history, session.turns, session.tokens) == ((user("a"),), 1, 4)
    await run(session)
    session.commit((), 4)


async def test_a_reply_that_is_set_aside_is_generated_again_in_the_same_turn() -> None:
    engine = OwnerEngine()
    session = session_of(engine)
    await run(session, (1, 2, 3))
    session.commit((user("a"),), 4)
    with pytest.raises(SessionError):
        session.set_aside()
    owner = session.owner
    for _ in range(2):
        await run(session, (1, 2, 3, 4, 5, 6))
        session.set_aside()
        with pytest.raises(SessionError):
            session.commit((), 0)
        with pytest.raises(SessionError):
            session.set_aside()
    assert session.turn_open
    await run(session, (1, 2, 3, 4, 5, 6))
    with pytest.raises(SessionError, match="roll back"):
        await run(session)
    session.commit((user("b"),), 7)
    assert (session.owner, session.turns, session.tokens) == (owner, 2, 7)


async def test_a_turn_whose_reply_was_set_aside_is_rolled_back_like_any_other() -> None:
    engine = OwnerEngine()
    session = session_of(engine)
    await run(session, (1, 2, 3))
    session.commit((user("a"),), 4)
    await run(session, (1, 2, 3, 4, 5, 6))
    session.set_aside()
    assert session.owner is not None
    assert await session.rollback()
    assert (engine.cells[session.owner], session.history, session.turn_open) == (4, (user("a"),), False)


async def test_a_sibling_has_cells_of_its_own_in_the_same_domain() -> None:
    engine = OwnerEngine()
    session = session_of(engine)
    sibling = session.sibling()
    await run(session)
    await run(sibling)
    assert sibling.owner not in (None, session.owner)
    assert (sibling.domain, sibling.defaults, sibling.history) == (session.domain, session.defaults, ())
    await sibling.dispose()
    assert not session.disposed


async def test_rollback_undoes_a_rebase_and_asks_no_engine_before_the_turn() -> None:
    desk = Desk()
    await desk.turn(desk.query("a", history=(user("x"),)))
    session = desk.registry.lease(desk.query("b", previous="a")).session
    session.rebase((user("y"),))
    assert await session.rollback()
    assert session.history == (user("x"), assistant("ok"))
    assert ("truncate", session.owner) not in desk.engine.log


@pytest.mark.parametrize("how", ["refuses", "fails", "restarted"])
async def test_rollback_without_the_engines_word_leaves_only_dispose_and_reset(how: str) -> None:
    engine = OwnerEngine()
    session = session_of(engine)
    await run(session)
    engine.truncates = how != "refuses"
    if how == "fails":
        engine.failing = {"truncate"}
    elif how == "restarted":
        engine.restart()
    assert not await session.rollback()
    with pytest.raises(SessionError):
        await run(session)
    await session.reset()
    await run(session)
    session.commit((), 4)


async def test_reset_starts_anew_under_a_new_owner() -> None:
    engine = OwnerEngine()
    session = session_of(engine)
    await run(session)
    session.commit((user("a"),), 4)
    first = session.owner
    await session.reset()
    assert (session.history, session.turns, session.tokens, session.owner) == ((), 0, 0, None)
    session.prime((user("b"),))
    await run(session)
    assert session.owner not in (None, first)
    assert first not in engine.cells


async def test_dispose_is_idempotent_and_then_any_use_raises() -> None:
    session = session_of(OwnerEngine())
    await run(session)
    session.commit((), 4)
    await session.dispose()
    await session.dispose()
    assert session.disposed
    for use in (lambda: session.prime(()), lambda: session.rebase(()), lambda: session.commit((), 0)):
        with pytest.raises(SessionDisposed):
            use()
    for call in (run(session), session.reset(), session.rollback()):
        with pytest.raises(SessionDisposed):
            await call


async def test_a_retry_revisits_only_the_owners_that_failed() -> None:
    engine = OwnerEngine()
    session = session_of(engine)
    await run(session)
    session.commit((), 4)
    first = session.owner
    engine.failing = {"release"}
    with pytest.raises(EngineFault):
        await session.reset()
    await run(session)
    session.commit((), 4)
    second = session.owner
    assert session.owners == (first, second)
    engine.failing, engine.hold = set(), {"release"}
    task = asyncio.create_task(session.dispose())
    await ticks()
    engine.held[0].succeed()
    await ticks()
    engine.held[0].fail()
    with pytest.raises(EngineFault):
        await task
    assert session.owners == (second,)
    engine.hold = set()
    engine.log.clear()
    await session.dispose()
    assert engine.log == [("release", second)]
