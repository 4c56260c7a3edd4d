"""The server process: the socket, the signals, and the order of going up and down."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import signal
import socket
from collections.abc import Callable, Coroutine, Iterator
from typing import Final, TypeVar

import structlog
import uvicorn

from warmlane.api.settings import MAX_BODY_BYTES
from warmlane.cli.parts import Build, ServerParts
from warmlane.config import Settings
from warmlane.errors import ConfigError

log = structlog.stdlib.get_logger("warmlane.cli.serve")

T = TypeVar("T")

FLUSH_S: Final = 5
"""After the turns have ended: how long connections may take to send what is buffered."""

CLOSE_S: Final = 15.0
"""How long the engine and the store may take to close."""

HURRIED_CLOSE_S: Final = 2.0

KEEP_ALIVE_S: Final = 75
"""How long an idle connection is kept. SDKs pool theirs for 5 s; a server that closes at the same moment drops their
next request."""


def run_server(settings: Settings, build: Build, *, on_ready: Callable[[int], None]) -> int:
    """Serve until SIGINT or SIGTERM; returns the process's exit code. `on_ready` gets the port listened on.

    The first signal refuses new turns and waits for the running ones, at most `grace_s`; then 0. The second ends at
    once, with 128 and its number. Raises `ConfigError` if the address cannot be bound or `build` says so.
    """
    with (
        contextlib.closing(bind(settings.host, settings.port)) as listener,
        asyncio.Runner(loop_factory=_loop_factory()) as runner,
    ):
        return runner.run(_Process(settings, listener, on_ready).run(build))


def bind(host: str, port: int) -> socket.socket:
    """A bound TCP socket that does not listen yet. Raises `ConfigError`."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (socket.gaierror, UnicodeError):
        raise ConfigError(f"--host {host} is not an address of this machine. Give --host 127.0.0.1.") from None
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise ConfigError(_bind_complaint(error, host, port)) from None
    return listener


def _bind_complaint(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"Port {port} on {host} is in use. Stop what uses it, or give another --port (0 takes a free one)."
    if error.errno == errno.EACCES:
        return f"Port {port} needs privileges this user does not have. Give a --port from 1024 up."
    if error.errno == errno.EADDRNOTAVAIL:
        return f"--host {host} is not an address of this machine. Give --host 127.0.0.1."
    return f"{host}:{port} cannot be listened on: {error.strerror}. Give another --host or --port."


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


class _Signals:
    """The stop signals received, in order."""

    def __init__(self) -> None:
        self.first = asyncio.Event()
        self.second = asyncio.Event()
        self.last: signal.Signals = signal.SIGTERM
        self.on_hangup: Callable[[], None] = lambda: None

    def install(self, loop: asyncio.AbstractEventLoop) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.receive, number)
        loop.add_signal_handler(signal.SIGHUP, lambda: self.on_hangup())

    def receive(self, number: signal.Signals) -> None:
        self.last = number
        (self.second if self.first.is_set() else self.first).set()


class _Uvicorn(uvicorn.Server):
    """uvicorn without its signal handlers; says when it listens."""

    def __init__(self, config: uvicorn.Config, on_started: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_started = on_started

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self._on_started()


class _Process:
    """One run of the server, from the bound socket to the exit code."""

    def __init__(self, settings: Settings, listener: socket.socket, on_ready: Callable[[int], None]) -> None:
        self._settings = settings
        self._listener = listener
        self._on_ready = on_ready
        self._signals = _Signals()

    async def run(self, build: Build) -> int:
        self._signals.install(asyncio.get_running_loop())
        parts = await _unless(self._signals.first, _await(build, self._settings))
        if parts is None:
            return 0
        self._signals.on_hangup = parts.reload
        try:
            await self._serve(parts)
        finally:
            hurried = self._signals.second.is_set()
            await self._close(parts, HURRIED_CLOSE_S if hurried else CLOSE_S)
        return 128 + self._signals.last if self._signals.second.is_set() else 0

    async def _serve(self, parts: ServerParts) -> None:
        server = _Uvicorn(self._uvicorn_config(parts), self._listening)
        serving = asyncio.create_task(server.serve(sockets=[self._listener]))
        try:
            await _unless(self._signals.first, _wait(serving))
            if serving.done():
                return
            log.info("draining", grace_s=self._settings.grace_s)
            parts.begin_drain()
            await _unless(self._signals.second, parts.drained(self._settings.grace_s))
            server.should_exit = True
            await _unless(self._signals.second, _wait(serving))
        finally:
            server.should_exit = server.force_exit = True
            await serving

    def _uvicorn_config(self, parts: ServerParts) -> uvicorn.Config:
        return uvicorn.Config(
            parts.app,
            interface="asgi3",
            log_config=None,
            access_log=False,
            server_header=False,
            ws_max_size=MAX_BODY_BYTES,
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=FLUSH_S,
        )

    def _listening(self) -> None:
        port = self._listener.getsockname()[1]
        log.info("ready", host=self._settings.host, port=port)
        self._on_ready(port)

    async def _close(self, parts: ServerParts, within_s: float) -> None:
        try:
            async with asyncio.timeout(within_s):
                await parts.close()
        except TimeoutError:
            log.warning("close_timed_out", after_s=within_s)


async def _await(build: Build, settings: Settings) -> ServerParts:
    return await build(settings)


async def _wait(task: asyncio.Task[None]) -> None:
    """Wait for a task without owning it: being cancelled does not cancel it."""
    await asyncio.wait([task])


async def _unless(stop: asyncio.Event, work: Coroutine[object, object, T]) -> T | None:
    """The result of `work`, or None if `stop` was set first; `work` is then cancelled and has ended."""
    task = asyncio.create_task(work)
    stopped = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([task, stopped], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
    finally:
        stopped.cancel()
        task.cancel()
        await asyncio.wait([task, stopped])
    return None
