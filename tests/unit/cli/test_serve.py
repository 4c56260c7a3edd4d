"""Going up and down: a real process, real signals, turns that end when the test says so."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import httpx


class Server:
    """The process of `fake_server`, and the lines it prints."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def exit_code(self) -> int:
        return self._process.wait(timeout=20)

    def url(self) -> str:
        word, port = self.line().split()
        assert word == "ready"
        return f"http://127.0.0.1:{port}"


@contextmanager
def server(model: str = "fake") -> Iterator[Server]:
    environment = {k: v for k, v in os.environ.items() if not k.upper().startswith("WARMLANE_")}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    command = [sys.executable, "-m", "unit.cli.fake_server", model]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, text=True
    ) as process:
        try:
            yield Server(process)
        finally:
            process.kill()


def test_a_signal_ends_an_idle_server_with_0() -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        with server() as process:
            url = process.url()
            assert httpx.get(f"{url}/ready").status_code == 200
            process.signal(number)

            assert [process.line(), process.line()] == ["draining", "closed"]
            assert process.exit_code() == 0


def test_a_running_turn_finishes_while_ready_says_503() -> None:
    with server() as process:
        url = process.url()
        with httpx.stream("GET", f"{url}/turn") as turn:
            lines = turn.iter_lines()
            assert next(lines) == "begun"
            process.signal(signal.SIGTERM)
            assert process.line() == "draining"
            assert httpx.get(f"{url}/ready").status_code == 503
            httpx.get(f"{url}/finish")
            assert next(lines) == "done"

        assert process.line() == "closed"
        assert process.exit_code() == 0


def test_a_second_signal_ends_at_once() -> None:
    with server() as process, httpx.stream("GET", f"{process.url()}/turn") as turn:
        assert next(turn.iter_lines()) == "begun"
        process.signal(signal.SIGTERM)
        assert process.line() == "draining"
        process.signal(signal.SIGINT)

        assert process.line() == "closed"
        assert process.exit_code() == 128 + signal.SIGINT


def test_a_signal_while_the_model_loads_stops_loading() -> None:
    with server("slow") as process:
        assert process.line() == "loading"
        process.signal(signal.SIGINT)

        assert process.line() == "unloaded"
        assert process.exit_code() == 0


def test_a_build_that_refuses_ends_the_process() -> None:
    with server("broken") as process:
        assert process.line() == "refused The model is broken."
        assert process.exit_code() == 2
