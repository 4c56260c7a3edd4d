"""A whole server in a process of its own, as a user would start it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

START_TIMEOUT_S = 60.0


@dataclass
class LiveServer:
    """A running `warmlane serve`. `output` is what it has said on stdout and stderr so far."""

    process: subprocess.Popen[str]
    base_url: str = ""
    output: list[str] = field(default_factory=list)

    def stop(self, number: signal.Signals = signal.SIGTERM, *, timeout_s: float = 60.0) -> int:
        """Send a signal and return the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(timeout_s)


def environment() -> dict[str, str]:
    """This process's environment, less what would configure the server."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("WARMLANE_")}
    return clean | {"PYTHONUNBUFFERED": "1", "XDG_CONFIG_HOME": "/nonexistent"}


@contextmanager
def live_server(
    *flags: str,
    store: Path | str | None = None,
    variables: Mapping[str, str] = MappingProxyType({}),
    python: str = sys.executable,
) -> Iterator[LiveServer]:
    """Start a server on a free port and wait until it says where it serves; stop it at the end. `variables` are added
    to its environment; `python` is the interpreter it is installed in."""
    with tempfile.TemporaryDirectory() as scratch:
        command = [python, "-m", "warmlane", "serve", "--port", "0"]
        command += ["--store", str(store or Path(scratch) / "responses.db"), *flags]
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment() | dict(variables),
        )
        server = LiveServer(process)
        ready = threading.Event()
        reader = threading.Thread(target=_read, args=(server, ready), daemon=True)
        reader.start()
        try:
            if not ready.wait(START_TIMEOUT_S) or not server.base_url:
                raise RuntimeError("the server did not start:\n" + "".join(server.output))
            yield server
        finally:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
            reader.join()


def _read(server: LiveServer, ready: threading.Event) -> None:
    assert server.process.stdout is not None
    for line in server.process.stdout:
        server.output.append(line)
        if match := re.match(r"Serving .* on (http://\S+?)\.\s", line):
            server.base_url = match[1]
        elif line.lstrip().startswith("curl "):
            ready.set()
    ready.set()
    server.process.stdout.close()
