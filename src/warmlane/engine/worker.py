"""The worker process: `python -m warmlane.engine.worker DIRECTORY`, started by `process.WorkerProcess`.

Two threads: this one reads commands and tokenizes, the decode thread computes. So neither a tokenization nor a
cancellation waits for a decode. The process ends when told to, when its parent is gone, and when decoding dies.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import zmq

from warmlane.engine.assembly import Assembled, assemble
from warmlane.engine.messages import (
    AskStats,
    Cancel,
    Command,
    Done,
    Forget,
    Release,
    Report,
    Reset,
    Start,
    Started,
    StartFailed,
    StatsReport,
    Stop,
    Submit,
    Tokenize,
    Tokenized,
    Truncate,
    TurnOutput,
    TurnOutputs,
)
from warmlane.engine.scheduler import Scheduler
from warmlane.engine.thread import DecodeThread
from warmlane.engine.wire import commands_address, decode_command, encode, reports_address, unlimited
from warmlane.errors import ConfigError

log = logging.getLogger("warmlane.engine.worker")

PARENT_POLL_MS = 500
"""How often the worker looks whether its parent is still there, where the kernel does not tell it."""

DECODE_DIED_STATUS = 71
_LINGER_MS = 2000
_PR_SET_PDEATHSIG = 1


class Reports:
    """Sends reports from any thread: a zmq socket belongs to one thread, so each gets its own."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]], address: str) -> None:
        self._context = context
        self._address = address
        self._local = threading.local()

    def send(self, report: Report) -> None:
        socket: zmq.Socket[bytes] | None = getattr(self._local, "socket", None)
        if socket is None:
            socket = self._local.socket = self._context.socket(zmq.PUSH)
            unlimited(socket)
            socket.set(zmq.LINGER, _LINGER_MS)
            socket.connect(self._address)
        socket.send(encode(report))


class Worker:
    """Obeys commands until `Stop`."""

    def __init__(self, reports: Reports, *, parent: int) -> None:
        self._reports = reports
        self._parent = parent
        self._thread: DecodeThread | None = None
        self._assembled: Assembled | None = None

    def obey(self, command: Command) -> bool:
        """False once there is nothing more to do."""
        match command:
            case Start():
                return self._start(command)
            case Stop():
                if self._thread is not None:
                    self._thread.stop()
                    self._thread.join()
                return False
            case Tokenize():
                assert self._assembled is not None
                tokenizer = self._assembled.backend.tokenizer
                ids = [
                    tokenizer.tokenize(p.text, special=p.special, bos=p.bos, joined=p.joined) for p in command.pieces
                ]
                self._reports.send(Tokenized(command.call, ids))
            case Submit(turn, request):
                assert self._thread is not None
                self._thread.submit(turn, request)
            case Cancel(turn):
                assert self._thread is not None
                self._thread.cancel(turn)
            case _:
                assert self._thread is not None
                self._thread.post(self._on_thread(command))
        return True

    def _start(self, command: Start) -> bool:
        self._thread = DecodeThread(
            partial(assemble, command.config, command.generation, serving_pid=self._parent),
            on_outputs=self._on_outputs,
            on_death=_die,
        )
        try:
            self._assembled = self._thread.start().result()
        except ConfigError as error:
            self._reports.send(StartFailed(error.message))
            return False
        self._reports.send(Started(self._assembled.info))
        return True

    def _on_thread(self, command: Command) -> Callable[[Scheduler], None]:
        """What the decode thread does for a command, between two steps."""
        reports = self._reports

        def act(scheduler: Scheduler) -> None:
            match command:
                case Release(call, owner, purge):
                    scheduler.release(owner, purge=purge)
                    reports.send(Done(call, ok=True))
                case Truncate(call, owner, length):
                    reports.send(Done(call, ok=scheduler.truncate(owner, length)))
                case Forget(call, domain, prompt, at, keep):
                    reports.send(Done(call, ok=scheduler.cache.forget(domain, prompt, at=at, keep=keep)))
                case Reset(call):
                    scheduler.reset()
                    reports.send(Done(call, ok=True))
                case AskStats(call):
                    reports.send(StatsReport(call, scheduler.stats()))

        return act

    def _on_outputs(self, outputs: list[TurnOutput]) -> None:
        self._reports.send(TurnOutputs(outputs))


def serve(directory: Path, *, parent: int) -> None:
    """Obey until told to stop or until process `parent` is no longer our parent."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    commands = context.socket(zmq.PULL)
    unlimited(commands)
    commands.bind(commands_address(directory))
    worker = Worker(Reports(context, reports_address(directory)), parent=parent)
    while os.getppid() == parent:
        if commands.poll(PARENT_POLL_MS) and not worker.obey(decode_command(commands.recv())):
            break
    commands.close(linger=0)
    # Threads and native memory end with the process; only what was sent last must still leave.
    context.destroy(linger=_LINGER_MS)


def main() -> None:
    """Entry point; arguments are the socket directory and the parent's process id."""
    directory, parent = Path(sys.argv[1]), int(sys.argv[2])
    die_with_parent()
    # The terminal sends SIGINT to everybody; the server drains first and then tells us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    serve(directory, parent=parent)


def die_with_parent() -> None:
    """Have the kernel kill this process when the thread that started it ends (Linux); elsewhere polling does."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _die(error: BaseException) -> None:
    """Decoding cannot go on: end the process, so that the server notices and starts another."""
    log.critical("the decode thread died", exc_info=error)
    os._exit(DECODE_DIED_STATUS)


if __name__ == "__main__":
    main()
