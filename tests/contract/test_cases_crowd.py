"""Faults other servers have had, tried on a live one: crowds. docs/cases.md tells which is which."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import httpx
import pytest

from support.crowd import Guest, answers, bytes_a_request, empty, guests
from support.server import LiveServer, live_server

pytestmark = pytest.mark.live

SYSTEM = "You guard numbers, and repeat only your own. " * 45
N_GUESTS = 32
ROUNDS = 10
N_REQUESTS = 900
BYTES_A_REQUEST = 8192
"""Measured: 2,900 to 3,700 as the store's page caches fill and each turn leaves a trace. The soak goes on until they
are full, and has a closer bound."""


@pytest.fixture
async def http(paged_server: LiveServer) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=paged_server.base_url, timeout=60) as made:
        yield made


async def test_a_crowd_behind_one_system_prompt_never_hears_of_each_other() -> None:
    """Half of the answers are hashes of the cells seen, half repeat a number; each is what its client gets alone."""
    rng = random.Random(17)
    flags = ("--simulated-hash", "--capacity", str(N_GUESTS), "--ctx", "8192")
    with live_server("--engine", "simulated", *flags) as server:
        async with httpx.AsyncClient(base_url=server.base_url, timeout=60) as http:
            secrets = [str(n) for n in rng.sample(range(10_000, 100_000), N_GUESTS)]
            said = [f"Repeat {s}." if i % 2 else f"EMIT:It is {s}." for i, s in enumerate(secrets)]

            async def hear(crowd: list[Guest], salt: str) -> list[str]:
                return await answers(http, crowd, model="simulated", system=SYSTEM, salt=salt, max_tokens=12)

            alone = [(await hear([Guest("chat", asked)], f"alone {asked}"))[0] for asked in said]
            for number in range(ROUNDS):
                crowd = guests(rng, said, leaving=0.3)
                for guest, heard, expected in zip(crowd, await hear(crowd, f"round {number}"), alone, strict=True):
                    whole = guest.leaves_after is None
                    assert heard == expected if whole else expected.startswith(heard)
            await empty(http)
            assert len(set(alone)) == N_GUESTS


@pytest.mark.timeout(300)
async def test_requests_of_which_every_third_is_left_leave_nothing(
    paged_server: LiveServer, http: httpx.AsyncClient
) -> None:
    grown = await bytes_a_request(paged_server, http, n=N_REQUESTS)
    print(f"{grown:.0f} bytes a request")
    assert grown < BYTES_A_REQUEST
