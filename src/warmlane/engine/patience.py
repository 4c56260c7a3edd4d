"""How long the cells of a chain that no running turn has a use for stay in the hot pool."""

from __future__ import annotations

from warmlane.engine.chains import Chain, ChainPool

ROWS_A_SNAPSHOT = 180
"""A snapshot of cells that were computed one by one costs as much as this many tokens computed beside them lose to
them: 0.9 ms a cell, because values lie by channel and each is copied by itself, against 5 us a cell and token. Where
prompts were computed, cells lie together and leave at next to no cost. Measured on 2 cores without flash attention."""


class Patience:
    """Attention costs by the highest used cell, so what is of no use must leave before new cells are put behind it:
    at once, when turns begin to run. A chain whose turn ended since then stays until what was computed beside it costs
    what its snapshot costs: its conversation's next turn may come first, or all turns end."""

    def __init__(self, pool: ChainPool) -> None:
        self._pool = pool
        self._busy_from: int | None = None

    def observe(self, *, busy: bool) -> None:
        """Whether turns run or wait now; call it before the first of them computes."""
        if not busy:
            self._busy_from = None
        elif self._busy_from is None:
            self._busy_from = self._pool.rows

    def is_over(self, chain: Chain, own: int, ahead: int) -> bool:
        """Whether to give the chain up while turns run, of which `own` cells are nobody else's, where `ahead` tokens
        are known to be computed next."""
        if self._busy_from is None or chain.rows_at <= self._busy_from:
            return True
        beside = self._pool.rows - chain.rows_at + ahead
        return beside * own >= ROWS_A_SNAPSHOT * min(own, chain.scattered)
