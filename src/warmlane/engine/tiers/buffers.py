"""Large byte buffers that are used again: fresh memory costs a page fault every 4 KiB, and made a snapshot of 1,024
tokens (24 MB) take 66 ms instead of 3."""

from __future__ import annotations

import mmap
import sys

import numpy as np

from warmlane.engine.backends.base import ByteArray

_MAPPED_BYTES = 1 << 20
_GRAIN = 64


class Buffers:
    """Buffers of at most `limit_bytes` in total, those in use and those kept for the next `take`."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.allocated_bytes = 0
        self._spare: list[ByteArray] = []

    def take(self, n_bytes: int) -> ByteArray | None:
        """A buffer of at least `n_bytes` (and at most a quarter more); None if the limit has no room for it now."""
        size = min(_rounded(n_bytes), self.limit_bytes)
        if n_bytes > size:
            return None
        fitting = [b for b in self._spare if n_bytes <= b.size <= size + size // 4]
        if fitting:
            return self._remove(min(fitting, key=lambda b: b.size))
        while self.allocated_bytes + size > self.limit_bytes and self._spare:
            self.allocated_bytes -= self._remove(max(self._spare, key=lambda b: b.size)).size
        if self.allocated_bytes + size > self.limit_bytes:
            return None
        self.allocated_bytes += size
        return _allocate(size)

    def give_back(self, buffer: ByteArray) -> None:
        """Keep a buffer that `take` gave for another use."""
        self._spare.append(buffer)

    def _remove(self, buffer: ByteArray) -> ByteArray:
        return self._spare.pop(next(i for i, b in enumerate(self._spare) if b is buffer))


def _rounded(n_bytes: int) -> int:
    """The next of eight sizes an octave, so that buffers fit one another's purposes."""
    grain = max(_GRAIN, 1 << max(0, n_bytes.bit_length() - 4))
    return max(grain, -(-n_bytes // grain) * grain)


def _allocate(size: int) -> ByteArray:
    """Mapped memory where it is large: it goes back to the system when it is dropped, whatever was allocated since, and
    in huge pages (where there are any) even its first use costs little."""
    if size < _MAPPED_BYTES:
        return np.empty(size, dtype=np.uint8)
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if sys.platform == "linux":
        memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, dtype=np.uint8)
