"""A chain is the whole conversation or nothing."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from unit.store.turns import NOW, turn
from warmlane.store import ResponseStore
from warmlane.store.database import WRITES, Database
from warmlane.store.migrate import migrate
from warmlane.store.queries import chain_rows
from warmlane.store.sql import SqlResponseStore
from warmlane.store.sqlite import MEMORY, sqlite_engine


async def save_chain(store: ResponseStore, *ids: str, parent: str | None = None) -> None:
    for response_id in ids:
        await store.save(turn(response_id, parent))
        parent = response_id


async def chain_ids(store: ResponseStore, response_id: str, now: float = NOW) -> list[str] | None:
    chain = await store.history(response_id, "ada", now=now)
    return None if chain is None else [t.id for t in chain.turns]


async def test_messages_come_oldest_first_with_their_sampled_tokens(store: ResponseStore) -> None:
    await save_chain(store, "a", "b")

    chain = await store.history("b", "ada", now=NOW)

    assert chain is not None
    assert [m.text for m in chain.messages] == ["ask a", "answer a", "ask b", "answer b"]
    assert chain.last.output.sampled == turn("b").output.sampled


async def test_forks_share_their_trunk(store: ResponseStore) -> None:
    await save_chain(store, "a", "b")
    await save_chain(store, "c1", "d1", parent="b")
    await save_chain(store, "c2", parent="b")

    assert await chain_ids(store, "d1") == ["a", "b", "c1", "d1"]
    assert await chain_ids(store, "c2") == ["a", "b", "c2"]
    assert await chain_ids(store, "b") == ["a", "b"]


async def test_a_chain_of_two_hundred_turns(store: ResponseStore) -> None:
    ids = [f"r{n}" for n in range(200)]
    await save_chain(store, *ids)

    assert await chain_ids(store, "r199") == ids


async def test_an_unknown_id_has_no_chain(store: ResponseStore) -> None:
    assert await chain_ids(store, "nothing") is None


@pytest.mark.parametrize("missing", ["a", "b", "c"])
async def test_a_chain_with_a_deleted_member_is_gone(store: ResponseStore, missing: str) -> None:
    await save_chain(store, "a", "b", "c")
    await store.delete(missing, "ada")

    assert await chain_ids(store, "c") is None


async def test_a_chain_never_crosses_into_another_tenant(store: ResponseStore) -> None:
    await store.save(turn("a", tenant="bob"))
    await store.save(turn("b", "a", tenant="ada"))

    assert await chain_ids(store, "b") is None


async def test_a_row_that_is_its_own_ancestor_ends_the_recursion() -> None:
    # Nothing the server writes is like this; a damaged file may be.
    statement = str(chain_rows("a", "ada", NOW).compile(compile_kwargs={"literal_binds": True}))

    assert "RECURSIVE" in statement
    assert "age < 100000" in statement


async def test_a_chain_is_read_in_one_statement() -> None:
    engine = sqlite_engine(MEMORY, timeout_s=5)
    async with engine.execution_options(**{WRITES: True}).begin() as connection:
        await connection.run_sync(migrate)
    store = SqlResponseStore(Database(engine, timeout_s=5, one_writer=True), server="s")
    await save_chain(store, "a", "b", "c")
    statements: list[str] = []

    @sa.event.listens_for(engine.sync_engine, "before_cursor_execute")
    def note(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
        statements.append(statement)

    assert await chain_ids(store, "c") == ["a", "b", "c"]
    await store.close()

    assert [s.split()[0] for s in statements] == ["BEGIN", "WITH"]
