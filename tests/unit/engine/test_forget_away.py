"""What is forgotten while the worker is down is gone at once, and unknown to the next one."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import pytest

from unit.engine.harness import DOMAIN
from unit.engine.test_engines import SIMULATED, request_for
from warmlane.engine.client import WorkerEngine
from warmlane.engine.forgetting import Forgotten, OwedForgets
from warmlane.engine.protocol import Placed
from warmlane.engine.vectors import Int32Array, digest
from warmlane.errors import EngineFault

OTHER = b"other-domain-16b"
LONG = "hi " * 100


@dataclass
class Down:
    """A worker that does not come back before `gate` is open."""

    engine: WorkerEngine
    folder: Path
    gate: asyncio.Event

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        assert self.engine.worker_pid is not None
        os.kill(self.engine.worker_pid, number)

    async def died(self) -> None:
        while self.engine.generation == 1:
            await asyncio.sleep(0.005)
        assert not self.engine.ready

    async def back(self) -> None:
        self.gate.set()
        await self.engine.wait_ready()

    @property
    def files(self) -> list[Path]:
        return sorted(self.folder.glob("*.kv"))

    async def ask(self, domain: bytes, text: str = LONG) -> Placed:
        request = msgspec.structs.replace(await request_for(self.engine, text), domain=domain)
        events = [event async for event in self.engine.generate(request)]
        await self.engine.release(request.owner)
        assert isinstance(events[0], Placed)
        return events[0]

    async def prompt(self, text: str) -> Int32Array:
        return np.asarray((await request_for(self.engine, text)).prompt, dtype=np.int32)

    async def saved(self, n: int) -> None:
        while len(self.files) < n:
            await asyncio.sleep(0.01)


@asynccontextmanager
async def down(folder: Path) -> AsyncIterator[Down]:
    gate = asyncio.Event()

    async def wait(_: float) -> None:
        await gate.wait()

    config = msgspec.structs.replace(SIMULATED, disk_cache_dir=str(folder), disk_idle_s=0.0)
    engine = await WorkerEngine.start(config, sleep=wait)
    try:
        yield Down(engine, folder, gate)
    finally:
        await engine.close()


async def test_a_domain_is_forgotten_on_disk_and_the_others_are_not(tmp_path: Path) -> None:
    async with down(tmp_path / "kv") as d:
        await d.ask(DOMAIN)
        await d.ask(OTHER)
        await d.saved(2)
        d.kill()
        await d.died()
        d.files[0].with_suffix(".tmp").write_bytes(b"what a killed worker was writing")
        await d.engine.forget(DOMAIN)
        assert len(d.files) == 1
        assert not list(d.folder.glob("*.tmp"))

        await d.back()
        assert (await d.ask(DOMAIN)).cached_tokens == 0
        assert (await d.ask(OTHER)).disk_tokens > 0


async def test_what_the_next_worker_found_before_is_forgotten_before_it_serves(tmp_path: Path) -> None:
    async with down(tmp_path / "kv") as d:
        await d.ask(DOMAIN)
        await d.saved(1)
        d.kill()
        await d.died()
        shutil.copytree(d.folder, tmp_path / "seen")
        await d.engine.forget(DOMAIN)
        # As though it had read them before they were removed.
        shutil.copytree(tmp_path / "seen", d.folder, dirs_exist_ok=True)

        await d.back()
        assert (await d.ask(DOMAIN)).cached_tokens == 0


async def test_a_worker_that_dies_while_it_is_asked_makes_no_difference(tmp_path: Path) -> None:
    async with down(tmp_path / "kv") as d:
        await d.ask(DOMAIN)
        await d.saved(1)
        d.kill(signal.SIGSTOP)
        forgetting = asyncio.create_task(d.engine.forget(DOMAIN))
        await asyncio.sleep(0.05)
        assert not forgetting.done()
        d.kill()
        await forgetting
        assert d.files == []


async def test_one_turn_is_forgotten_and_the_rest_of_its_domain_stays(tmp_path: Path) -> None:
    async with down(tmp_path / "kv") as d:
        await d.ask(DOMAIN, "one " * 100)
        prompt = await d.prompt("one " * 100)
        await d.ask(DOMAIN, "two " * 100)
        await d.saved(2)
        d.kill()
        await d.died()
        common = 40
        await d.engine.forget(DOMAIN, digest(prompt[:-2]), at=prompt.size - 1, keep=common)
        assert len(d.files) == 2
        await d.engine.forget(DOMAIN, digest(prompt[:-1]), at=prompt.size - 1, keep=common)
        assert len(d.files) == 1

        await d.back()
        assert (await d.ask(DOMAIN, "one " * 100)).cached_tokens <= common
        assert (await d.ask(DOMAIN, "two " * 100)).cached_tokens > common


async def test_files_that_cannot_be_removed_are_told(tmp_path: Path) -> None:
    async with down(tmp_path / "kv") as d:
        d.kill()
        await d.died()
        away = d.folder.rename(tmp_path / "away")
        d.folder.write_text("not a folder")
        with pytest.raises(EngineFault, match="could not be removed"):
            await d.engine.forget(DOMAIN)
        d.folder.unlink()
        away.rename(d.folder)
        await d.engine.forget(DOMAIN)


def test_what_is_owed_is_bounded() -> None:
    owed = OwedForgets(most_prompts=3)
    prompts = [Forgotten(bytes([n]), b"digest", at=n) for n in range(5)]
    for what in (*prompts, Forgotten(b"x"), Forgotten(b"x")):
        owed.add(what)

    taken = owed.take()
    assert set(taken) == {*prompts[:3], Forgotten(b"\3"), Forgotten(b"\4"), Forgotten(b"x")}
    assert len(taken) == 6
    assert owed.take() == ()
