"""Servers the bench starts itself, on a free port of this machine, and stops: never any other process."""

from __future__ import annotations

import asyncio
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from warmlane.errors import BenchError

START_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 60.0
POLL_S = 0.1
HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """How to start a kind of server. `{port}` and `{folder}` in `command` and in the flags stand for the port it is
    given and for a folder of its own. `small_flags` and `long_flags` make it of these shapes (see `workload.Shape`;
    empty: it is so anyway, or cannot be told), `durable_flags` make it keep what it computed over a restart."""

    command: tuple[str, ...]
    ready_path: str
    small_flags: tuple[str, ...] = ()
    long_flags: tuple[str, ...] = ()
    durable_flags: tuple[str, ...] = ()

    @asynccontextmanager
    async def start(self, *flags: str) -> AsyncIterator[RunningServer]:
        """Start one and wait until it is ready; stop it and remove its folder at the end. Raises `BenchError`."""
        with tempfile.TemporaryDirectory(prefix="warmlane-bench-") as folder:
            server = RunningServer([*self.command, *flags], Path(folder), self.ready_path)
            try:
                await server.start()
                yield server
            finally:
                await server.stop()


class RunningServer:
    """One started process. `restart` keeps its port and its folder."""

    def __init__(self, command: list[str], folder: Path, ready_path: str) -> None:
        self._port = free_port()
        self._command = [word.replace("{port}", str(self._port)).replace("{folder}", str(folder)) for word in command]
        self._log = folder / "output.log"
        self._ready_path = ready_path
        self._process: asyncio.subprocess.Process | None = None

    @property
    def base_url(self) -> str:
        return f"http://{HOST}:{self._port}"

    async def start(self) -> None:
        """Start the process and wait until it is ready. Raises `BenchError` with the end of what it said."""
        with self._log.open("ab") as log:
            try:
                self._process = await asyncio.create_subprocess_exec(
                    *self._command, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log
                )
            except OSError as error:
                raise BenchError(f"{self._command[0]} cannot be started: {error.strerror}.") from None
        await self._until_ready(self._process)

    async def stop(self) -> None:
        """SIGTERM, and SIGKILL to one that takes too long. Idempotent."""
        process, self._process = self._process, None
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

    async def restart(self) -> None:
        """Stop it and start it again with the same command. Raises `BenchError`."""
        await self.stop()
        await self.start()

    async def _until_ready(self, process: asyncio.subprocess.Process) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        async with httpx.AsyncClient(base_url=self.base_url, headers={"connection": "close"}) as http:
            while time.monotonic() < deadline:
                if process.returncode is not None:
                    raise BenchError(f"{self._command[0]} ended with status {process.returncode}: {self._last_words()}")
                try:
                    if (await http.get(self._ready_path)).status_code == 200:
                        return
                except httpx.HTTPError:
                    pass
                await asyncio.sleep(POLL_S)
        raise BenchError(f"{self._command[0]} was not ready after {START_TIMEOUT_S:.0f} s: {self._last_words()}")

    def _last_words(self) -> str:
        return " ".join(self._log.read_text(errors="replace").split())[-500:]


def free_port() -> int:
    """A port nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def warmlane_launcher(*flags: str) -> Launcher:
    """Ours, with a store of its own."""
    command = (sys.executable, "-m", "warmlane", "serve", "--host", HOST, "--port", "{port}")
    return Launcher(
        command=(*command, "--store", "{folder}/bench.db", *flags),
        ready_path="/ready",
        small_flags=("--capacity", "4", "--max-waiting", "16"),
        durable_flags=("--disk-cache", "{folder}/kv", "--disk-cache-size", "4GiB"),
    )


def llama_server_launcher(binary: Path, model: Path, *, n_threads: int, flags: tuple[str, ...] = ()) -> Launcher:
    """llama-server with four slots; of a flag given twice it takes the later one. Its slots have a quarter of the cells
    each, unless they share them (`-kvu`)."""
    threads = ("-t", str(n_threads), "-tb", str(n_threads))
    shape = ("-c", "16384", "-np", "4", "-b", "512", "-ub", "512", "-fa", "on")
    command = (str(binary), "-m", str(model), "--host", HOST, "--port", "{port}", *threads, *shape, *flags)
    return Launcher(command=command, ready_path="/health", long_flags=("-kvu",))
