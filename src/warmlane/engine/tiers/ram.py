"""The RAM tier: snapshots in memory, bounded in bytes, the least recently used given up first."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from warmlane.engine.backends.base import Allocate, ByteArray
from warmlane.engine.protocol import OwnerId
from warmlane.engine.tiers.buffers import Buffers
from warmlane.engine.tiers.pins import Pins
from warmlane.engine.tiers.segments import Segment, SegmentIndex
from warmlane.engine.vectors import Int32Array, common_prefix

log = logging.getLogger(__name__)

PINNED_SHARE = 1 / 2
"""The share of the tier beyond which being pinned does not help any more."""

Fill = Callable[[Allocate], ByteArray | None]


@dataclass(slots=True, eq=False)
class RamSegment(Segment):
    """`data` is the snapshot, a view of `buffer`, which is not used again while there are `readers`. `saved` once it is
    on its way to the disk, `gone` once it must not be there. `pinned_until_s` is on the monotonic clock."""

    data: ByteArray
    buffer: ByteArray
    readers: int = 0
    saved: bool = False
    gone: bool = False
    pinned_until_s: float = 0.0


class RamTier:
    """Used by one thread. Invariant: what all buffers take together never exceeds the limit. A shorter snapshot stays
    beside a longer one that cannot be cut to it (see `SegmentIndex`): it is the only way back to where it was taken.
    What holds tokens of `pins` is given up last, unless that is more than half of the tier."""

    def __init__(
        self, limit_bytes: int, *, whole: bool, window: int = 0, now: Callable[[], float], pins: Pins | None = None
    ) -> None:
        self.index: SegmentIndex[RamSegment] = SegmentIndex(whole=whole, window=window)
        self._buffers = Buffers(limit_bytes)
        self._now = now
        self._pins = pins
        self.evictions = 0
        self.refusals = 0

    @property
    def limit_bytes(self) -> int:
        return self._buffers.limit_bytes

    @property
    def allocated_bytes(self) -> int:
        return self._buffers.allocated_bytes

    @property
    def used_bytes(self) -> int:
        """What the snapshots take, without buffers that wait for the next ones."""
        return sum(segment.size for segment in self.index)

    def store(
        self, domain: bytes, tokens: Int32Array, start: int, owner: OwnerId | None, fill: Fill
    ) -> RamSegment | None:
        """Keep the snapshot that `fill` makes. None if it is larger than the tier, or if `fill` makes none. What the
        new segment holds as well is given up, then the least recently used as far as room is needed."""
        taken: list[ByteArray] = []

        def allocate(n_bytes: int) -> ByteArray | None:
            buffer = self._room(n_bytes)
            if buffer is None:
                return None
            taken.append(buffer)
            return buffer[:n_bytes]

        data = fill(allocate)
        if data is None:
            for buffer in taken:
                self._buffers.give_back(buffer)
            return None
        segment = RamSegment(
            domain=domain,
            tokens=tokens.copy(),
            start=start,
            size=int(data.size),
            owner=owner,
            used_s=self._now(),
            data=data,
            buffer=taken[-1],
            pinned_until_s=self._pins.until_s(domain, tokens, start) if self._pins else 0.0,
        )
        for other in self.index:
            if _within(other, segment) and self.index.serves(segment, int(other.tokens.size), other.start):
                self.remove(other)
        self.index.add(segment)
        return segment

    def remove(self, segment: RamSegment) -> None:
        """Give a segment up; its buffer is free once nobody reads it any more."""
        self.index.remove(segment)
        if not segment.readers:
            self._buffers.give_back(segment.buffer)

    def pin(self, domain: bytes) -> None:
        """The pins of a domain have changed."""
        if self._pins is not None:
            for segment in self.index:
                if segment.domain == domain:
                    segment.pinned_until_s = self._pins.until_s(domain, segment.tokens, segment.start)

    def hold(self, segment: RamSegment) -> None:
        """Keep the segment's bytes as they are until `let_go`."""
        segment.readers += 1

    def let_go(self, segment: RamSegment) -> None:
        segment.readers -= 1
        if not segment.readers and segment not in self.index:
            self._buffers.give_back(segment.buffer)

    def lend(self, n_bytes: int) -> ByteArray | None:
        """Memory of at least this size within the tier's limit, for a snapshot in the making; see `take_back`."""
        return self._room(n_bytes)

    def take_back(self, buffer: ByteArray) -> None:
        """What was lent is free again."""
        self._buffers.give_back(buffer)

    def clear(self) -> None:
        for segment in self.index:
            self.remove(segment)

    def _room(self, n_bytes: int) -> ByteArray | None:
        if n_bytes > self.limit_bytes:
            if not self.refusals:
                log.warning(
                    "KV of %d bytes does not fit in the memory for it (--ram-cache, %d bytes): it is kept neither "
                    "there nor on disk. Said once; counted as ram_refusals",
                    n_bytes,
                    self.limit_bytes,
                )
            self.refusals += 1
            return None
        while (buffer := self._buffers.take(n_bytes)) is None:
            victim = self._victim()
            if victim is None:
                return None
            self.remove(victim)
            self.evictions += 1
        return buffer

    def _victim(self) -> RamSegment | None:
        """The least recently used that nobody reads and nothing pins."""
        free = [s for s in self.index if not s.readers]
        now_s = self._now()
        pinned = sum(s.size for s in self.index if s.pinned_until_s > now_s)
        if pinned <= PINNED_SHARE * self.limit_bytes:
            free.sort(key=lambda s: s.pinned_until_s > now_s)
        return free[0] if free else None


def _within(inner: RamSegment, outer: RamSegment) -> bool:
    """Whether all that `inner` holds is in `outer`."""
    n = int(inner.tokens.size)
    return (
        inner.domain == outer.domain
        and inner.start >= outer.start
        and n <= outer.tokens.size
        and common_prefix(inner.tokens, outer.tokens) == n
    )
