"""The reader/writer gate: writers first, no lost place when one that was let in is cancelled."""

from __future__ import annotations

import asyncio

import pytest

from warmlane.host.gate import ModelGate


class Visitor:
    """Holds the gate in a task until told to leave."""

    def __init__(self, gate: ModelGate, kind: str) -> None:
        self.inside = False
        self._leave = asyncio.Event()
        self._side = gate.reader if kind == "reader" else gate.writer
        self.task = asyncio.create_task(self._visit())

    async def _visit(self) -> None:
        async with self._side():
            self.inside = True
            await self._leave.wait()
        self.inside = False

    async def leave(self) -> None:
        self._leave.set()
        await self.task


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_readers_share_and_the_writer_waits_for_all() -> None:
    gate = ModelGate()
    one, two = Visitor(gate, "reader"), Visitor(gate, "reader")
    writer = Visitor(gate, "writer")
    await settle()
    assert (one.inside, two.inside, writer.inside) == (True, True, False)
    await one.leave()
    await settle()
    assert not writer.inside
    await two.leave()
    await settle()
    assert writer.inside
    await writer.leave()


async def test_no_reader_passes_a_waiting_writer() -> None:
    gate = ModelGate()
    first, writer, late = Visitor(gate, "reader"), Visitor(gate, "writer"), Visitor(gate, "reader")
    await settle()
    assert not late.inside
    await first.leave()
    await settle()
    assert writer.inside
    assert not late.inside
    await writer.leave()
    await settle()
    assert late.inside
    await late.leave()


async def test_a_cancelled_waiting_writer_lets_readers_in() -> None:
    gate = ModelGate()
    first, writer, late = Visitor(gate, "reader"), Visitor(gate, "writer"), Visitor(gate, "reader")
    await settle()
    writer.task.cancel()
    await settle()
    assert late.inside
    await first.leave()
    await late.leave()


@pytest.mark.parametrize("kind", ["reader", "writer"])
async def test_one_let_in_and_cancelled_in_the_same_tick_passes_the_place_on(kind: str) -> None:
    gate = ModelGate()
    holder = gate.writer()
    await holder.__aenter__()
    unlucky, after = Visitor(gate, kind), Visitor(gate, "writer")
    await settle()
    await holder.__aexit__(None, None, None)
    unlucky.task.cancel()
    await settle()
    assert after.inside
    assert gate.readers == 0
    await after.leave()
    last = Visitor(gate, "reader")
    await settle()
    assert last.inside
    await last.leave()
