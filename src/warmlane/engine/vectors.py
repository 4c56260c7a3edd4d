"""Growable int32 vectors and the comparison the prefix cache rests on."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Int32Array = npt.NDArray[np.int32]


class IntVector:
    """An int32 vector that grows by doubling. `view` is valid until the next call that mutates the vector."""

    __slots__ = ("_data", "_length")

    def __init__(self, values: Sequence[int] | Int32Array = ()) -> None:
        self._data: Int32Array = np.array(values, dtype=np.int32)
        self._length = int(self._data.size)

    def __len__(self) -> int:
        return self._length

    @property
    def view(self) -> Int32Array:
        return self._data[: self._length]

    def append(self, value: int) -> None:
        self._reserve(1)
        self._data[self._length] = value
        self._length += 1

    def extend(self, values: Int32Array) -> None:
        self._reserve(int(values.size))
        self._data[self._length : self._length + values.size] = values
        self._length += int(values.size)

    def truncate(self, length: int) -> None:
        """Keep the first `length` values; a no-op for a vector that is not longer."""
        self._length = min(self._length, max(0, length))

    def _reserve(self, n: int) -> None:
        needed = self._length + n
        if needed > self._data.size:
            grown = np.empty(max(needed, 2 * self._data.size, 64), dtype=np.int32)
            grown[: self._length] = self.view
            self._data = grown


def digest(tokens: Int32Array) -> bytes:
    """16 bytes by which tokens are known again without being kept."""
    return hashlib.blake2b(tokens.tobytes(), digest_size=16).digest()


def common_prefix(a: Int32Array, b: Int32Array) -> int:
    """How many leading values of `a` and `b` are equal, compared one by one (no hash, so no collision)."""
    n = min(a.size, b.size)
    if n == 0 or a[0] != b[0]:
        return 0
    differs = a[:n] != b[:n]
    first = int(differs.argmax())
    return first if differs[first] else n
