"""Servers that are started: until ready, over a restart, and when they do not start."""

from __future__ import annotations

import sys
from pathlib import Path

import httpx
import pytest

from warmlane.bench.servers import Launcher, llama_server_launcher, warmlane_launcher
from warmlane.errors import BenchError

PYTHON_SERVER = (sys.executable, "-u", "-m", "http.server", "--bind", "127.0.0.1", "--directory", "{folder}", "{port}")


async def log_of(base_url: str) -> str:
    async with httpx.AsyncClient() as http:
        return (await http.get(f"{base_url}/output.log")).text


async def test_a_server_is_ready_inside_and_gone_after() -> None:
    async with Launcher(command=PYTHON_SERVER, ready_path="/output.log").start() as server:
        url = server.base_url
        assert "Serving HTTP" in await log_of(url)
    with pytest.raises(httpx.ConnectError):
        await log_of(url)


async def test_a_restart_keeps_the_place_and_the_folder() -> None:
    async with Launcher(command=PYTHON_SERVER, ready_path="/output.log").start() as server:
        url = server.base_url
        await server.restart()
        assert server.base_url == url
        assert (await log_of(url)).count("Serving HTTP") == 2


async def test_a_server_that_ends_is_quoted() -> None:
    command = (sys.executable, "-c", "raise SystemExit('no such model')")
    with pytest.raises(BenchError, match="ended with status 1: no such model"):
        async with Launcher(command=command, ready_path="/").start():
            pass


async def test_a_program_that_is_not_there_is_named() -> None:
    with pytest.raises(BenchError, match="/does/not/exist cannot be started"):
        async with Launcher(command=("/does/not/exist",), ready_path="/").start():
            pass


def test_the_peer_is_set_up_as_ours_is() -> None:
    launcher = llama_server_launcher(Path("llama-server"), Path("m.gguf"), n_threads=2, flags=("-np", "16"))
    line = " ".join(launcher.command)

    assert line.startswith("llama-server -m m.gguf --host 127.0.0.1 --port {port}")
    assert "-t 2 -tb 2 -c 16384 -np 4 -b 512 -ub 512 -fa on" in line
    assert line.endswith("-np 16")


def test_ours_keeps_what_it_computed() -> None:
    launcher = warmlane_launcher("--ctx", "8192")

    assert "--disk-cache" in launcher.durable_flags
    assert "--disk-cache" not in launcher.command
    assert "127.0.0.1" in launcher.command
    assert launcher.command[-2:] == ("--ctx", "8192")
