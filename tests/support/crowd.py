"""Many clients of a live server at once, some of which leave; and what the server holds after them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import linear_regression

import httpx

from support.dialects import PATHS, body_of, deltas_of
from support.server import LiveServer

NAMES = tuple(PATHS)
DISTINCT = 99
LOTS = 30


@dataclass(frozen=True, slots=True)
class Guest:
    """One client of a crowd: it asks in the dialect `name`, and goes away after `leaves_after` pieces, if that is not
    None."""

    name: str
    asked: str
    leaves_after: int | None = None


def guests(rng: random.Random, questions: Sequence[str], *, leaving: float) -> list[Guest]:
    """A guest for each question, in the three dialects by turns; `leaving` is the share that goes away."""
    return [
        Guest(NAMES[i % len(NAMES)], asked, rng.randrange(6) if rng.random() < leaving else None)
        for i, asked in enumerate(questions)
    ]


async def answers(
    http: httpx.AsyncClient, crowd: Sequence[Guest], *, model: str, system: str, salt: str, max_tokens: int
) -> list[str]:
    """What each was told, greedily, as far as it listened; all ask at once, behind the same system prompt."""

    async def ask(guest: Guest) -> str:
        dialogue = [("system", system), ("user", guest.asked)]
        body = body_of(
            guest.name, dialogue, model=model, stream=True, max_tokens=max_tokens, temperature=0, cache_salt=salt
        )
        heard: list[str] = []
        async with http.stream("POST", PATHS[guest.name], json=body) as response:
            assert response.status_code == 200, await response.aread()
            if guest.leaves_after == 0:
                return ""
            async for piece in deltas_of(guest.name, response.aiter_lines()):
                heard.append(piece)
                if len(heard) == guest.leaves_after:
                    break
        return "".join(heard)

    return await asyncio.gather(*map(ask, crowd))


async def churn(http: httpx.AsyncClient, *, first: int, n: int, system: str, at_once: int = 6) -> None:
    """`n` short requests, numbered from `first`, at most `at_once` at a time; every third client leaves half-way. They
    repeat, so that the cache and what is remembered of replies are soon as large as they get."""
    numbers = iter(range(first, first + n))

    async def ask_on() -> None:
        for i in numbers:
            asked = f"request {i % DISTINCT}"
            crowd = [Guest(NAMES[i // 3 % 3], asked, 2 if i % 3 == 0 else None)]
            heard = await answers(http, crowd, model="simulated", system=system, salt="churn", max_tokens=40)
            assert f"echo: {asked}".startswith(heard[0])
            assert crowd[0].leaves_after or heard[0] == f"echo: {asked}"

    async with asyncio.TaskGroup() as tasks:
        for _ in range(at_once):
            tasks.create_task(ask_on())


async def bytes_a_request(server: LiveServer, http: httpx.AsyncClient, *, n: int, system: str = "be brief") -> float:
    """How fast the memory of a server and its worker grows over the last two thirds of `n` requests of `churn`."""
    lot = max(1, n // LOTS)
    grown: list[tuple[int, int]] = []
    for first in range(0, n, lot):
        await churn(http, first=first, n=lot, system=system)
        await empty(http)
        grown.append((first + lot, resident_bytes(server)))
    return linear_regression(*zip(*grown[len(grown) // 3 :], strict=True)).slope


async def empty(http: httpx.AsyncClient) -> None:
    """Returns once nobody runs, waits or holds a permit."""
    while True:
        ready = (await http.get("/ready")).json()
        if (ready["active"], ready["waiting"], ready["permits"]) == (0, 0, 0):
            return


def resident_bytes(server: LiveServer) -> int:
    """The memory of the server and its workers."""
    return sum(resident_bytes_of(pid) for pid in (server.process.pid, *worker_pids(server)))


def worker_pids(server: LiveServer) -> list[int]:
    """The server's child processes: its workers, also one that has ended and was not waited for yet."""
    pid = server.process.pid
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def resident_bytes_of(pid: int) -> int:
    """The memory of one process."""
    status = Path(f"/proc/{pid}/status").read_text()
    kib = next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(kib) * 1024
