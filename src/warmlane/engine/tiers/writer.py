"""The thread that writes the disk tier's files, so that no turn waits for a disk."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import Protocol

log = logging.getLogger(__name__)

Job = Callable[[], None]


class Writer(Protocol):
    """Does jobs in the order they were given, at any later time and on any thread."""

    def submit(self, job: Job) -> None: ...

    def drain(self, timeout_s: float) -> None:
        """Wait until everything submitted so far is done, for at most this long."""
        ...

    def close(self, timeout_s: float) -> bool:
        """Do what was submitted, for at most this long; nothing may be submitted any more. False if jobs are left."""
        ...


class ThreadWriter:
    """A `Writer` with a thread of its own."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._given_up = False
        self._thread = threading.Thread(target=self._run, name="warmlane-disk", daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> None:
        self._jobs.put(job)

    def drain(self, timeout_s: float) -> None:
        done = threading.Event()
        self._jobs.put(done.set)
        done.wait(timeout_s)

    def close(self, timeout_s: float) -> bool:
        self._jobs.put(None)
        self._thread.join(timeout_s)
        # A job under way is finished or dies with the process, its file a draft; those behind it are not begun.
        self._given_up = True
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            if self._given_up:
                return
            try:
                job()
            except Exception:
                log.exception("a job of the disk cache failed")


class InlineWriter:
    """A `Writer` that does each job at once, on the caller's thread."""

    def submit(self, job: Job) -> None:
        job()

    def drain(self, timeout_s: float) -> None:
        pass

    def close(self, timeout_s: float) -> bool:
        return True
