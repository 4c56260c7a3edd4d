"""One live server on the simulated engine for all tests of a client."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from support.server import LiveServer, live_server

# Else litellm asks the network for prices as it is imported.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"


@pytest.fixture(scope="session")
def server() -> Iterator[LiveServer]:
    # Some clients do certain things only with a model of a name they know.
    names = ("--alias", "gpt-*", "--alias", "claude-*")
    with live_server("--engine", "simulated", *names, python=os.environ["SERVER_PYTHON"]) as server:
        yield server


@pytest.fixture(scope="session")
def openai_url(server: LiveServer) -> str:
    return f"{server.base_url}/v1"


@pytest.fixture(scope="session")
def server_url(server: LiveServer) -> str:
    return server.base_url
