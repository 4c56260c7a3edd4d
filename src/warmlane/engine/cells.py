"""Which KV cells exist and who holds them."""

from __future__ import annotations

import numpy as np

from warmlane.engine.vectors import Int32Array


class CellTable:
    """Which cells exist, counted one by one: a cell shared by several chains is one cell.

    The ids are the table's own; which slot of the backend's memory a cell lives in does not matter for the count.
    Invariant: `n_used` equals the number of distinct cells the backend holds, copies of those apart not counted.
    """

    def __init__(self, n_cells: int) -> None:
        self.n_cells = n_cells
        self._holders = np.zeros(n_cells, dtype=np.int32)
        self._free = np.arange(n_cells - 1, -1, -1, dtype=np.int32)
        self._n_free = n_cells

    @property
    def n_free(self) -> int:
        return self._n_free

    @property
    def n_used(self) -> int:
        return self.n_cells - self._n_free

    def take(self, n: int) -> Int32Array:
        """`n` fresh cells with one holder each. Raises IndexError if there are not that many."""
        if n > self._n_free:
            raise IndexError(f"{n} cells asked for, {self._n_free} free")
        self._n_free -= n
        cells = self._free[self._n_free : self._n_free + n].copy()
        self._holders[cells] = 1
        return cells

    def hold(self, cells: Int32Array) -> None:
        """One more holder for each."""
        self._holders[cells] += 1

    def give_back(self, cells: Int32Array) -> None:
        """One holder fewer for each; cells without one are free."""
        self._holders[cells] -= 1
        gone = cells[self._holders[cells] == 0]
        self._free[self._n_free : self._n_free + gone.size] = gone
        self._n_free += int(gone.size)

    def only_holder(self, cells: Int32Array) -> int:
        """How many of these cells have a single holder: what giving them back would free."""
        return int(np.count_nonzero(self._holders[cells] == 1))

    def n_shared(self, cells: Int32Array) -> int:
        """How many of these cells, from the first on, have other holders too."""
        alone = self._holders[cells] == 1
        first = int(alone.argmax()) if alone.size else 0
        return first if alone.size and alone[first] else int(alone.size)
