"""Writers and readers of one store at once, and what each row must then be.

Rows are numbered. Three make a conversation: a chain, or a conversation object they were said in; some are written as
runs, with events. Writers repeat what the store refuses, and nothing else may be raised.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import TypeVar

import msgspec

from unit.store.turns import NOW, turn
from warmlane.conversation.kept import Conversation
from warmlane.errors import StoreUnavailable
from warmlane.store import Continued, LoggedEvent, ResponseStore, StoredTurn, TurnStatus, open_store
from warmlane.store.rows import turn_entries

T = TypeVar("T")

TURNS = 3
"""Rows of one conversation."""

WRITERS = 6
READERS = 3
MOST_ATTEMPTS = 500
EVENTS = (LoggedEvent(0, b'{"n":0}'), LoggedEvent(1, b'{"n":1}'))


@dataclass
class Told:
    """What writers and readers heard: numbers of rows that were saved, how often they were refused, and how many
    reads found what they had to."""

    saved: set[int] = field(default_factory=set)
    refused: int = 0
    read: int = 0


def id_of(n: int) -> str:
    return f"r{n:06}"


def row_of(n: int) -> StoredTurn:
    previous = None if in_conversation(n) or n % TURNS == 0 else id_of(n - 1)
    return turn(id_of(n), previous, created_at=NOW + n, expires_at=NOW + 1e9)


def in_conversation(n: int) -> bool:
    """Whether the row is said in a conversation object, instead of continuing the row before it."""
    return n // TURNS % 4 == 3


def is_run(n: int) -> bool:
    return n % 5 == 0


async def write_and_read(store: ResponseStore, conversations: Sequence[int], *, seed: int) -> Told:
    """Write these conversations, many at a time, with readers beside; each must find what it was told of whole."""
    told, left = Told(), iter(conversations)
    rows = [n for c in conversations for n in range(c * TURNS, (c + 1) * TURNS)]
    chance, to_read = random.Random(seed), asyncio.Queue[int | None]()

    async def write() -> None:
        for c in left:
            for n in range(c * TURNS, (c + 1) * TURNS):
                await _write(store, n, told)
                # One that was just written, or any other: as many reads as writes.
                to_read.put_nowait(n if chance.random() < 0.5 else chance.choice(rows))

    async def read() -> None:
        while (n := await to_read.get()) is not None:
            with suppress(StoreUnavailable):
                await _check_while_written(store, n, told)

    async with asyncio.TaskGroup() as beside:
        for _ in range(READERS):
            beside.create_task(read())
        async with asyncio.TaskGroup() as writers:
            for _ in range(WRITERS):
                writers.create_task(write())
        for _ in range(READERS):
            to_read.put_nowait(None)
    assert told.saved == set(rows)
    return told


async def check(store: ResponseStore, rows: Sequence[int]) -> None:
    """Each of these rows is there, whole, with all that belongs to it. They are whole conversations."""
    for n in rows:
        row = row_of(n)
        assert await store.get(row.id, row.tenant, now=NOW) == row
        if is_run(n):
            assert await store.runs.events(row.id, row.tenant, now=NOW) == EVENTS
        if n % TURNS == TURNS - 1:
            await _check_conversation(store, range(n - TURNS + 1, n + 1))


async def _check_conversation(store: ResponseStore, rows: Sequence[int]) -> None:
    turns = [row_of(n) for n in rows]
    if in_conversation(rows[0]):
        transcript = await store.conversations.read(_conversation_of(rows[0]), turns[0].tenant)
        assert transcript is not None
        assert transcript.entries == tuple(entry for said in turns for entry in turn_entries(said))
    else:
        chain = await store.history(turns[-1].id, turns[-1].tenant, now=NOW)
        assert chain is not None
        assert [said.id for said in chain.turns] == [said.id for said in turns]


async def _check_while_written(store: ResponseStore, n: int, told: Told) -> None:
    row, was_saved = row_of(n), n in told.saved
    found = await store.get(row.id, row.tenant, now=NOW)
    assert found == row or (not was_saved and found in (None, _begun(row)))
    if was_saved and not in_conversation(n):
        chain = await store.history(row.id, row.tenant, now=NOW)
        assert chain is not None
        assert len(chain.turns) == n % TURNS + 1
    told.read += 1


async def _write(store: ResponseStore, n: int, told: Told) -> None:
    row, continued = row_of(n), None
    if in_conversation(n):
        await _until_taken(lambda: _open(store, n), told)
        continued = Continued(_conversation_of(n), 0)
    if is_run(n):
        await _write_run(store, row, continued, told)
    else:
        await _until_taken(lambda: store.save(row, continued=continued), told)
    told.saved.add(n)


async def _write_run(store: ResponseStore, row: StoredTurn, continued: Continued | None, told: Told) -> None:
    await _until_taken(lambda: store.runs.begin(_begun(row)), told)
    assert await _until_taken(lambda: store.runs.append(row.id, row.tenant, EVENTS), told)
    if not await _until_taken(lambda: store.runs.complete(row, continued=continued), told):
        # An attempt that was given up has ended it after all.
        assert await _until_taken(lambda: store.get(row.id, row.tenant, now=NOW), told) == row


async def _open(store: ResponseStore, n: int) -> None:
    name, tenant = _conversation_of(n), row_of(n).tenant
    if await store.conversations.get(name, tenant) is None:
        await store.conversations.create(Conversation(id=name, tenant=tenant, created_at=NOW, used_at=NOW + n))


async def _until_taken(attempt: Callable[[], Awaitable[T]], told: Told) -> T:
    for _ in range(MOST_ATTEMPTS):
        try:
            return await attempt()
        except StoreUnavailable:
            told.refused += 1
    raise AssertionError(f"the store refused a row {MOST_ATTEMPTS} times")


def _begun(row: StoredTurn) -> StoredTurn:
    return msgspec.structs.replace(row, outcome=None, status=TurnStatus.QUEUED)


def _conversation_of(n: int) -> str:
    return f"conv_{n // TURNS:06}"


class WritingProcess:
    """Another process with the store open, that writes and reads what it is told to."""

    def __init__(self, url: str, *, timeout_s: float, seed: int) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._pipe, theirs = spawn.Pipe()
        self._process = spawn.Process(target=_work, args=(theirs, url, timeout_s, seed), daemon=True)
        self._process.start()
        theirs.close()

    async def opened(self) -> None:
        """Once the store is open there."""
        assert await asyncio.to_thread(self._pipe.recv) is None

    async def write_and_read(self, conversations: Sequence[int]) -> Told:
        self._pipe.send(list(conversations))
        told = await asyncio.to_thread(self._pipe.recv)
        assert isinstance(told, Told)
        return told

    def close(self) -> None:
        self._pipe.close()
        self._process.join(30)
        assert self._process.exitcode == 0


@contextmanager
def writing_processes(url: str, count: int, *, timeout_s: float) -> Iterator[list[WritingProcess]]:
    processes = [WritingProcess(url, timeout_s=timeout_s, seed=seed) for seed in range(count)]
    try:
        yield processes
    finally:
        for process in processes:
            process.close()


def _work(pipe: Connection, url: str, timeout_s: float, seed: int) -> None:
    asyncio.run(_write_what_is_told(pipe, url, timeout_s, seed))


async def _write_what_is_told(pipe: Connection, url: str, timeout_s: float, seed: int) -> None:
    store = await open_store(url, timeout_s=timeout_s)
    pipe.send(None)
    while (conversations := await asyncio.to_thread(_received, pipe)) is not None:
        pipe.send(await write_and_read(store, conversations, seed=seed))
    await store.close()


def _received(pipe: Connection) -> list[int] | None:
    try:
        numbers = pipe.recv()
    except EOFError:
        return None
    assert isinstance(numbers, list)
    return numbers
