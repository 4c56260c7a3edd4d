"""Kills of the worker under clients that converse, and what must be so all the while."""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from support.crowd import empty, resident_bytes_of, worker_pids
from support.patrons import Message, Moments, Patron, until_ready
from support.server import LiveServer

GROWTH_BYTES = 32 << 20
"""What the server's bounded memories may take until they are full, whatever the number of kills."""


def metric(text: str, name: str) -> float:
    found = re.search(rf"^{name}\{{[^}}]*\}} (\S+)$", text, re.MULTILINE)
    assert found is not None, name
    return float(found[1])


@dataclass(slots=True)
class Killer:
    """Kills the worker at a chosen moment and sees that the server notices and gets another."""

    server: LiveServer
    http: httpx.AsyncClient
    moments: Moments
    rng: random.Random
    pids: set[int] = field(default_factory=set)
    deaths: int = 0

    async def kill(self, moment: str) -> None:
        """At a `prefill`, a `decode`, when all is `idle`, or while the next worker is `loading`."""
        match moment:
            case "prefill":
                await self.moments.more("opened", self.rng.randint(1, 6))
            case "decode":
                await self.moments.more("piece", self.rng.randint(1, 60))
            case _:
                pass
        await self._kill_running()
        if moment == "loading":
            await self._kill_loading()
        await until_ready(self.http)
        await self._check_metrics()

    async def kill_idle(self) -> None:
        """With nobody there: the warm sessions of the dead worker are gone at once."""
        assert (await self.http.get("/v1/sessions")).json()["data"]
        await self._kill_running()
        assert (await self.http.get("/v1/sessions")).json()["data"] == []
        await until_ready(self.http)
        await self._check_metrics()

    async def _kill_running(self) -> None:
        (pid,) = worker_pids(self.server)
        self.pids.add(pid)
        self.deaths += 1
        os.kill(pid, signal.SIGKILL)
        await until_ready(self.http, ready=False)

    async def _kill_loading(self) -> None:
        """The next worker before it is ready. One that is quicker counts as a running one."""
        while not (loading := [pid for pid in worker_pids(self.server) if pid not in self.pids]):
            await asyncio.sleep(0)
        self.pids.update(loading)
        os.kill(loading[0], signal.SIGKILL)
        while loading[0] in worker_pids(self.server):
            await asyncio.sleep(0)

    async def _check_metrics(self) -> None:
        text = (await self.http.get("/metrics")).text
        generation = metric(text, "warmlane_engine_generation")
        assert 1 + self.deaths <= generation <= 1 + len(self.pids)
        assert metric(text, "warmlane_engine_restarts_total") == generation - 1
        assert metric(text, "warmlane_engine_ready") == 1


@dataclass(frozen=True, slots=True)
class Footprint:
    """What a server takes of the machine."""

    descriptors: int
    resident_bytes: int
    folders: int

    @classmethod
    def of(cls, server: LiveServer, folder: Path) -> Footprint:
        pid = server.process.pid
        descriptors = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        return cls(descriptors, resident_bytes_of(pid), sum(1 for _ in folder.glob("warmlane-*")))


async def ordeal(
    server: LiveServer,
    folder: Path,
    *,
    phases: int,
    moments: Sequence[str],
    model: str,
    message: Message,
    calm: str | None,
    max_tokens: int,
) -> Killer:
    """In each phase patrons converse while the worker is killed at these moments, and once more when they have left.
    `folder` is where the server's temporary files are; `calm` is the address of an undisturbed server."""
    async with AsyncExitStack() as opened:
        http = await opened.enter_async_context(httpx.AsyncClient(base_url=server.base_url, timeout=300))
        quiet = None
        if calm is not None:
            quiet = await opened.enter_async_context(httpx.AsyncClient(base_url=calm, timeout=300))
        noted, going_on = Moments(), asyncio.Event()
        killer = Killer(server, http, noted, random.Random(1))
        patrons = [
            Patron(i, http, noted, calm=quiet, model=model, message=message, max_tokens=max_tokens) for i in range(6)
        ]
        for patron in patrons:
            patron.others = frozenset(p.secret for p in patrons if p is not patron)
        before = Footprint.of(server, folder)
        for _ in range(phases):
            going_on.set()
            async with asyncio.TaskGroup() as tasks:
                for patron in patrons:
                    tasks.create_task(patron.converse(going_on))
                for moment in moments:
                    await killer.kill(moment)
                await noted.more("served", len(patrons))
                going_on.clear()
            await empty(http)
            await killer.kill_idle()
            after = Footprint.of(server, folder)
            assert after.folders == 1
            # Both clients keep some connections.
            assert after.descriptors <= before.descriptors + 2 * len(patrons)
        text = (await http.get("/metrics")).text
        assert metric(text, "warmlane_sessions_disposals_owed") == 0
        assert metric(text, "warmlane_engine_cells_running") == metric(text, "warmlane_engine_waiting_turns") == 0
        assert noted.counts["failed"] > 0
        growth = after.resident_bytes - before.resident_bytes
        print(f"{killer.deaths} kills, {dict(noted.counts)}, the server grew by {growth / 1024:.0f} KiB")
        assert growth < GROWTH_BYTES
    return killer


def nothing_left(pids: Iterable[int], folder: Path) -> bool:
    """Whether none of these is a worker any more, and none of their sockets is in the folder."""
    return not any(_is_worker(pid) for pid in pids) and not list(folder.glob("warmlane-*"))


def _is_worker(pid: int) -> bool:
    try:
        return b"warmlane.engine.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
