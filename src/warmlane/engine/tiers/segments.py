"""Snapshots as pieces of token sequences, and the search for those that continue a prompt.

A segment holds the KV of `tokens[start:]`, which is only valid behind exactly `tokens[:start]`: so it keeps all of its
tokens, and a match is verified token by token. A conversation saved turn by turn is a row of segments, each starting
within what the ones before it cover.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from warmlane.engine.protocol import OwnerId
from warmlane.engine.vectors import Int32Array, common_prefix

WORTH_SHARE = 1 / 256
"""The share of a segment's tokens that must be of use: restoring one costs about a thousandth of computing it."""


@dataclass(slots=True, eq=False)
class Segment:
    """One snapshot. `size` is in bytes; `owner` is the conversation whose end takes it along if it is purged;
    `used_s` is on the monotonic clock."""

    domain: bytes
    tokens: Int32Array
    start: int
    size: int
    owner: OwnerId | None
    used_s: float

    def __len__(self) -> int:
        """Tokens whose KV it holds."""
        return int(self.tokens.size) - self.start

    def is_part_of(self, domain: bytes, tokens: Int32Array, *, keep: int) -> bool:
        """Whether it is of the domain and, if there are `tokens`, nobody's and agrees with them beyond the first
        `keep`."""
        if self.domain != domain:
            return False
        return not tokens.size or (self.owner is None and common_prefix(self.tokens, tokens) > keep)


S = TypeVar("S", bound=Segment)


class SegmentIndex(Generic[S]):
    """Segments by domain, the least recently used first. `whole` is for models that cannot truncate: their segments
    start at 0 and serve at their full length only. `window` is the attention window of models that have one, else 0:
    what lies further back from the end of a segment is not in it for all layers."""

    def __init__(self, *, whole: bool, window: int = 0) -> None:
        self._whole = whole
        self._window = window
        self._segments: dict[S, None] = {}

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[S]:
        """From the least recently used on."""
        return iter(tuple(self._segments))

    def __contains__(self, segment: S) -> bool:
        return segment in self._segments

    def add(self, segment: S) -> None:
        self._segments[segment] = None

    def remove(self, segment: S) -> None:
        del self._segments[segment]

    def touch(self, segment: S, now_s: float) -> None:
        """It was of use."""
        segment.used_s = now_s
        if segment in self._segments:
            del self._segments[segment]
            self._segments[segment] = None

    def serves(self, segment: Segment, length: int, covered: int) -> bool:
        """Whether the segment, restored behind `covered` tokens, can be cut to `length` in all."""
        if length == segment.tokens.size:
            return True
        first_whole = segment.tokens.size - self._window + 1 if self._window else 0
        return not self._whole and max(segment.start, first_whole) <= covered

    def best(self, domain: bytes, wanted: Int32Array, covered: int, *, least: int = 1) -> tuple[S, int] | None:
        """The segment that continues the first `covered` tokens of `wanted` furthest, and how far; None if none does
        by `least` tokens, or by so many as make restoring it worth while."""
        found: tuple[S, int] | None = None
        reach = covered
        for segment in self._segments:
            if segment.domain != domain or segment.start > covered or not _may_exceed(segment.tokens, wanted, reach):
                continue
            n = common_prefix(segment.tokens, wanted)
            if not self.serves(segment, n, covered):
                continue
            if n > reach and n - covered >= max(least, len(segment) * WORTH_SHARE):
                found, reach = (segment, n), n
        return found

    def trail(self, domain: bytes, wanted: Int32Array, covered: int = 0, *, least: int = 1) -> list[tuple[S, int]]:
        """The segments that continue `covered` tokens of `wanted` one behind the other, each by `least` or to the end,
        and how far each does."""
        found: list[tuple[S, int]] = []
        while (step := self.best(domain, wanted, covered, least=min(least, max(1, wanted.size - covered)))) is not None:
            found.append(step)
            covered = step[1]
        return found

    def covered(self, domain: bytes, wanted: Int32Array, covered: int = 0, *, least: int = 1) -> int:
        """How many leading tokens of `wanted` are at hand where `covered` of them are."""
        trail = self.trail(domain, wanted, covered, least=least)
        return trail[-1][1] if trail else covered

    def longest(self, domain: bytes, wanted: Int32Array) -> tuple[S, int] | None:
        """The segment whose tokens agree with `wanted` the longest, of use or not."""
        found: tuple[S, int] | None = None
        reach = 0
        for segment in self._segments:
            if segment.domain == domain and _may_exceed(segment.tokens, wanted, reach):
                n = common_prefix(segment.tokens, wanted)
                if n > reach:
                    found, reach = (segment, n), n
        return found

    def needed(self, domain: bytes, tokens: Int32Array) -> int:
        """How many leading tokens of `tokens` segments rest on without holding them."""
        return max(
            (
                s.start
                for s in self._segments
                if s.domain == domain and 0 < s.start <= tokens.size and _agree(s.tokens, tokens, s.start)
            ),
            default=0,
        )


def _may_exceed(a: Int32Array, b: Int32Array, n: int) -> bool:
    """Whether `a` and `b` may have more than `n` tokens in common: one comparison instead of all of them."""
    return a.size > n and b.size > n and bool(a[n] == b[n])


def _agree(a: Int32Array, b: Int32Array, n: int) -> bool:
    return common_prefix(a[:n], b[:n]) == n
