"""A chain goes on from the lower tiers: out of memory, and out of files that are read into it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from warmlane.engine.backends.base import Backend
from warmlane.engine.chains import Chain, ChainPool
from warmlane.engine.tiers.disk import DiskSegment, DiskTier
from warmlane.engine.tiers.ram import RamSegment, RamTier
from warmlane.engine.vectors import Int32Array


class Restorer:
    """Brings segments back into the hot pool. Used by one thread. `damaged` is called with a segment that the backend
    does not take: nobody is to find it again."""

    def __init__(
        self,
        backend: Backend,
        pool: ChainPool,
        ram: RamTier,
        disk: DiskTier | None,
        *,
        damaged: Callable[[RamSegment], None],
        least_shared: int,
        now: Callable[[], float],
    ) -> None:
        self._backend = backend
        self._whole = not backend.info.can_truncate
        self._pool = pool
        self._ram = ram
        self._disk = disk
        self._damaged = damaged
        self._least_shared = least_shared
        self._now = now
        self.restores = 0
        self.restore_failures = 0

    def extend(self, chain: Chain, wanted: Int32Array, ms_per_token: float | None) -> tuple[int, int]:
        """Continue the running chain with what the tiers have of `wanted` behind it; returns how many of its tokens
        came from RAM and from disk. A file is read if that is expected to be quicker than computing at `ms_per_token`,
        takes next to no time, or that speed is not known yet. If the model cannot be cut back a snapshot takes the
        place of all that the chain held, also in vain."""
        ram = disk = 0
        used: list[RamSegment] = []
        while True:
            covered = len(chain)
            found = self._ram.index.best(chain.domain, wanted, covered)
            loaded = self._load(chain.domain, wanted, covered, found[1] if found else covered, ms_per_token)
            # Asked again: a file that was read in vain may have taken the place of what was found.
            found = loaded or self._ram.index.best(chain.domain, wanted, covered)
            if found is None:
                break
            restored = self._restore(chain, *found)
            if self._whole:  # It takes the place of what the chain held, also in vain.
                covered = ram = disk = 0
            if not restored:
                break
            gained = len(chain) - covered
            ram, disk = (ram, disk + gained) if loaded is not None else (ram + gained, disk)
            if gained >= min(self._least_shared, len(found[0]) / 2):
                used.append(found[0])
        # The first last: what others continue must not be given up before them.
        for segment in reversed(used):
            self._ram.index.touch(segment, self._now())
            if self._disk is not None:
                self._disk.touch_like(segment)
        return ram, disk

    def _load(
        self, domain: bytes, wanted: Int32Array, covered: int, reach: int, ms_per_token: float | None
    ) -> tuple[RamSegment, int] | None:
        """Bring a file into memory that continues the prompt further than memory does."""
        while self._disk is not None:
            found = self._disk.best(domain, wanted, covered)
            if found is None or found[1] <= reach or not self._disk.pays(found[0], found[1] - reach, ms_per_token):
                return None
            segment = self._read(self._disk, found[0])
            if segment is not None:
                return segment, found[1]
            if not self._disk.was_removed(found[0]):
                return None
        return None

    def _read(self, disk: DiskTier, file: DiskSegment) -> RamSegment | None:
        segment = self._ram.store(file.domain, file.tokens, file.start, file.owner, partial(disk.read, file))
        if segment is not None:
            segment.saved = True
        return segment

    def _restore(self, chain: Chain, segment: RamSegment, reach: int) -> bool:
        if self._whole:
            self._pool.truncate(chain, 0)
        begin = len(chain)
        self._ram.hold(segment)
        try:
            if not self._pool.reserve(len(segment)):
                return False
            if not self._backend.restore(chain.seq, segment.data, begin, reach):
                self.restore_failures += 1
                self._damaged(segment)
                return False
            self._pool.grow(chain, segment.tokens[begin:reach])
            self.restores += 1
            return True
        finally:
            self._ram.let_go(segment)
