"""Odd bodies as in the unit tests, ten times as many, against a live server: each is answered or refused as such."""

from __future__ import annotations

import json
from collections.abc import Iterator

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.dialects import PATHS, body_of, check_envelope, told
from support.server import live_server
from unit.api.test_fuzz import odd_bodies

pytestmark = pytest.mark.live
N_BODIES = 3000
JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with (
        live_server("--engine", "simulated", "--ctx", "4096") as server,
        httpx.Client(base_url=server.base_url, timeout=60) as made,
    ):
        yield made


@pytest.mark.parametrize("name", PATHS)
@settings(max_examples=N_BODIES, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data(), stream=st.booleans())
def test_one_odd_value_anywhere_is_answered_or_refused(
    client: httpx.Client, name: str, data: st.DataObject, stream: bool
) -> None:
    body = {**data.draw(odd_bodies(name)), "model": "simulated", "stream": stream}
    got = client.post(PATHS[name], content=json.dumps(body).encode(), headers=JSON)
    if got.status_code != 200:
        check_envelope(name, got.status_code, got.headers, got.content)
    elif stream:
        assert "server_error" not in got.text
        assert "api_error" not in got.text


@pytest.mark.parametrize("name", PATHS)
def test_and_the_next_good_one_is_answered(client: httpx.Client, name: str) -> None:
    assert told(name, client.post(PATHS[name], json=body_of(name, [("user", "hi")]))).text == "echo: hi"
