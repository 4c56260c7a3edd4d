"""One process owns a cache directory at a time; the kernel gives the claim up with the process, however it ends."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from warmlane.errors import ConfigError

_LOCK_NAME = "owner"


class DirectoryClaim:
    """The right to use a directory, from construction to `release`.

    `serving_pid` is the process to stop for the directory to be free, by default this one; that of a worker is its
    server, which would start another worker. Raises `ConfigError` that names the owner's if somebody else has the
    directory; and if it cannot be used.
    """

    def __init__(self, directory: Path, *, serving_pid: int | None = None) -> None:
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            directory.chmod(0o700)
            self._descriptor = os.open(directory / _LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise ConfigError(
                f"The disk cache directory {directory} cannot be used: {error.strerror}. Give --disk-cache another."
            ) from None
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = os.pread(self._descriptor, 32, 0).decode("ascii", "replace").strip()
            os.close(self._descriptor)
            raise ConfigError(
                f"The disk cache directory {directory} is in use by process {owner or 'unknown'}. "
                "Stop that process, or give --disk-cache another directory."
            ) from None
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{serving_pid or os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let others have the directory. Idempotent."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
