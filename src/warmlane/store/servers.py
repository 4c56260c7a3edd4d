"""Which process wrote a row, and whether that process is still there."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Mapping
from pathlib import Path


class Listener:
    """How long other servers have said nothing new, by the caller's clock alone: what they say may be by another.

    A caller that has not listened for `gap_s` was away itself, or its clock was set: it begins anew with all of them.
    """

    def __init__(self, *, gap_s: float) -> None:
        self._gap_s = gap_s
        self._listened_at: float | None = None
        self._heard: dict[str, tuple[float, float]] = {}

    def silent_s(self, said: Mapping[str, float], *, now: float) -> dict[str, float]:
        """For each server, seconds since what it said last was first heard. `said` is anything that changes."""
        before = self._heard
        if self._listened_at is None or not 0 <= now - self._listened_at <= self._gap_s:
            before = {}
        self._listened_at = now
        self._heard = {
            server: before[server] if server in before and before[server][0] == word else (word, now)
            for server, word in said.items()
        }
        return {server: now - since for server, (_, since) in self._heard.items()}


def this_server() -> str:
    """A name for this process that no other has: machine and boot, process id and start, and something random."""
    pid = os.getpid()
    return "/".join((_machine(), str(pid), _started(pid) or "", secrets.token_hex(4)))


def is_alive(server: str) -> bool | None:
    """Whether a server of `this_server` still runs; None if it is one of another machine."""
    machine, _, process = server.partition("/")
    if machine != _machine():
        return None
    pid, _, rest = process.partition("/")
    started = _started(int(pid)) if pid.isdecimal() else None
    return started is not None and started == rest.partition("/")[0]


def _machine() -> str:
    """The host and its boot: a process id means nothing after a reboot, or in another container."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return socket.gethostname().replace("/", "_")
    return f"{socket.gethostname().replace('/', '_')}:{boot}:{namespace}"


def _started(pid: int) -> str | None:
    """When a process was started, in the kernel's ticks: a pid is used again, but not with the same one. None if it is
    gone or a zombie; "" where the kernel does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None if Path("/proc/self/stat").exists() else _answers(pid)
    return None if fields[0] in "ZX" else fields[19]


def _answers(pid: int) -> str | None:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:
        return ""
    return ""
