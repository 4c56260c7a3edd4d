"""Live servers on the simulated engine, one of each kind for the whole run."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from support.server import LiveServer, live_server


@pytest.fixture(scope="session")
def paged_server() -> Iterator[LiveServer]:
    with live_server("--engine", "simulated") as server:
        yield server


@pytest.fixture(scope="session")
def flat_server() -> Iterator[LiveServer]:
    with live_server("--engine", "simulated", "--flat") as server:
        yield server


@pytest.fixture(params=["paged", "flat"])
def server(request: pytest.FixtureRequest) -> LiveServer:
    return request.getfixturevalue(f"{request.param}_server")  # type: ignore[no-any-return]


@pytest.fixture
def http(server: LiveServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.base_url, timeout=60) as client:
        yield client
