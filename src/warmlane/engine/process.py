"""One worker process as the server sees it: spawned, talked to, waited for."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import zmq
import zmq.asyncio

from warmlane.engine.config import EngineConfig
from warmlane.engine.messages import Command, Report, Start, Started, StartFailed, Stop
from warmlane.engine.protocol import EngineInfo
from warmlane.engine.wire import (
    RECONNECT_MS,
    commands_address,
    decode_report,
    encode,
    reports_address,
    unlimited,
)
from warmlane.errors import ConfigError

log = logging.getLogger(__name__)

STOP_TIMEOUT_S = 10.0
_LAST_WORDS_MS = 20


class WorkerProcess:
    """A running worker. Make it with `spawn`; `close` it in any case, also after it died."""

    def __init__(self, process: asyncio.subprocess.Process, directory: Path) -> None:
        self._process = process
        self._directory = directory
        self._context = zmq.asyncio.Context()
        self._plain: zmq.Context[zmq.Socket[bytes]] = zmq.Context.shadow(self._context.underlying)
        self._commands: zmq.Socket[bytes] = self._plain.socket(zmq.PUSH)
        self._commands.set(zmq.RECONNECT_IVL, RECONNECT_MS)
        self._reports = self._context.socket(zmq.PULL)
        unlimited(self._commands)
        self._reports.set(zmq.RCVHWM, 0)
        self._reports.bind(reports_address(directory))
        self._commands.connect(commands_address(directory))

    @classmethod
    async def spawn(
        cls, config: EngineConfig, generation: int, *, load_timeout_s: float
    ) -> tuple[WorkerProcess, EngineInfo]:
        """Start a worker and have it load its model.

        Raises `ConfigError` with the worker's reason, or with ours if it died or took longer than `load_timeout_s`.
        """
        directory = Path(tempfile.mkdtemp(prefix="warmlane-"))
        process: asyncio.subprocess.Process | None = None
        worker: WorkerProcess | None = None
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "warmlane.engine.worker",
                str(directory),
                str(os.getpid()),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                # Out of the terminal's foreground group: Ctrl-C is the server's to handle.
                start_new_session=True,
            )
            worker = cls(process, directory)
            return worker, await worker._load(config, generation, load_timeout_s)
        except BaseException:
            if worker is not None:
                await worker.close()
            elif process is not None:
                process.kill()
                await process.wait()
            shutil.rmtree(directory, ignore_errors=True)
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, command: Command) -> None:
        """Queue a command; never blocks."""
        self._commands.send(encode(command))

    async def receive(self, on_report: Callable[[Report], None]) -> int:
        """Hand reports on until the process has ended and all it sent was read; returns its exit status."""
        reader = asyncio.create_task(self._read(on_report))
        try:
            status = await self._process.wait()
            while await self._reports.poll(_LAST_WORDS_MS):
                # The reader takes what there is; polling yields to it.
                await asyncio.sleep(0)
            return status
        finally:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)

    async def close(self) -> None:
        """Ask the worker to stop, kill it if it does not, and remove its sockets. Idempotent."""
        if self._process.returncode is None:
            self.send(Stop())
            try:
                async with asyncio.timeout(STOP_TIMEOUT_S):
                    await self._process.wait()
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
        self._commands.close(linger=0)
        self._reports.close(linger=0)
        self._context.term()
        shutil.rmtree(self._directory, ignore_errors=True)

    async def _read(self, on_report: Callable[[Report], None]) -> None:
        while True:
            on_report(decode_report(await self._reports.recv()))

    async def _load(self, config: EngineConfig, generation: int, timeout_s: float) -> EngineInfo:
        self.send(Start(config, generation))
        first: asyncio.Future[Report] = asyncio.get_running_loop().create_future()

        def on_report(report: Report) -> None:
            if not first.done():
                first.set_result(report)

        receiving = asyncio.create_task(self.receive(on_report))
        try:
            async with asyncio.timeout(timeout_s):
                waited: tuple[asyncio.Future[Report], asyncio.Task[int]] = (first, receiving)
                await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            self._process.kill()
            raise ConfigError(
                f"The model {_named(config)} did not load within {timeout_s:.0f} s. Pick a smaller one or wait longer."
            ) from None
        finally:
            receiving.cancel()
            await asyncio.gather(receiving, return_exceptions=True)
        if not first.done():
            raise ConfigError(_died_loading(config, self._process.returncode))
        report = first.result()
        if isinstance(report, StartFailed):
            raise ConfigError(report.reason)
        assert isinstance(report, Started)
        return report.info


def _named(config: EngineConfig) -> str:
    return config.model_path or config.model_name


def _died_loading(config: EngineConfig, status: int | None) -> str:
    return (
        f"The worker process ended ({describe_exit(status)}) while it loaded {_named(config)}. "
        "The file may be damaged, or memory too small: get the file again, or try a smaller model or --ctx."
    )


def describe_exit(status: int | None) -> str:
    """An exit status in words."""
    if status is not None and status < 0:
        names = {int(known): known.name for known in signal.Signals}
        return f"signal {names.get(-status, str(-status))}"
    return f"status {status}"
