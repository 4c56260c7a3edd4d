"""The disk tier: snapshots in files, which make a restart warm.

Losing a file loses work, never correctness: whatever is torn or damaged is a miss and is removed, and what is not ours
is left alone.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from warmlane.engine.backends.base import Allocate, ByteArray
from warmlane.engine.protocol import OwnerId
from warmlane.engine.tiers.claim import DirectoryClaim
from warmlane.engine.tiers.ram import RamSegment
from warmlane.engine.tiers.segment_file import (
    Header,
    file_name,
    make_header,
    read_data,
    remove_drafts,
    segment_files,
    sync_directory,
    write_draft,
)
from warmlane.engine.tiers.segments import Segment, SegmentIndex
from warmlane.engine.tiers.writer import Writer
from warmlane.engine.vectors import Int32Array

log = logging.getLogger(__name__)

GRACE_S = 0.05
"""Reading that takes no longer than this is not weighed against recomputing."""

_FIRST_GUESS_BYTES_PER_S = 400e6
_SMOOTHING = 0.3
_HOPE = 1.02
"""Growth of the believed speed each time reading is passed over for being slow, so that it is tried again."""


@dataclass(slots=True, eq=False)
class DiskSegment(Segment):
    path: Path
    header: Header


@dataclass(frozen=True, slots=True)
class _Foreign:
    """A file of another model or format: it counts, and goes first."""

    path: Path
    size: int


class DiskTier:
    """Files of one directory, which is claimed for this process.

    Reading happens on the caller's thread, writing on the writer's; the index is shared under a lock. `key` names the
    model and the format of its snapshots. Raises `ConfigError` if another process has the directory.
    """

    def __init__(
        self,
        directory: Path,
        *,
        serving_pid: int | None = None,
        limit_bytes: int,
        key: bytes,
        whole: bool,
        window: int = 0,
        writer: Writer,
        now: Callable[[], float],
    ) -> None:
        self._claim = DirectoryClaim(directory, serving_pid=serving_pid)
        self._directory = directory
        self.limit_bytes = limit_bytes
        self._key = key
        self._writer = writer
        self._now = now
        self._lock = threading.Lock()
        self._index: SegmentIndex[DiskSegment] = SegmentIndex(whole=whole, window=window)
        self._foreign: list[_Foreign] = []
        self._stuck: list[DiskSegment] = []
        self._bytes = 0
        self._bytes_per_s = _FIRST_GUESS_BYTES_PER_S
        self.writes = 0
        self.write_errors = 0
        self.damaged = 0
        self.passed_over = 0
        self._scan()

    @property
    def used_bytes(self) -> int:
        """What our files take, those of other models included."""
        return self._bytes

    @property
    def n_segments(self) -> int:
        """Files that serve this model."""
        return len(self._index)

    def best(self, domain: bytes, wanted: Int32Array, covered: int) -> tuple[DiskSegment, int] | None:
        """See `SegmentIndex.best`."""
        with self._lock:
            return self._index.best(domain, wanted, covered)

    def covered(self, domain: bytes, wanted: Int32Array, covered: int = 0, *, least: int = 1) -> int:
        """See `SegmentIndex.covered`."""
        with self._lock:
            return self._index.covered(domain, wanted, covered, least=least)

    def longest(self, domain: bytes, wanted: Int32Array) -> tuple[DiskSegment, int] | None:
        """See `SegmentIndex.longest`."""
        with self._lock:
            return self._index.longest(domain, wanted)

    def pays(self, segment: DiskSegment, gained: int, prefill_ms_per_token: float | None) -> bool:
        """Whether reading the segment is expected to be quicker than computing the `gained` tokens."""
        read_s = segment.size / self._bytes_per_s
        if read_s <= GRACE_S or prefill_ms_per_token is None or read_s <= gained * prefill_ms_per_token / 1e3:
            return True
        self._bytes_per_s *= _HOPE
        self.passed_over += 1
        return False

    def read(self, segment: DiskSegment, allocate: Allocate) -> ByteArray | None:
        """The snapshot, verified. None if there is no room for it or it is damaged; it is then removed."""
        started = self._now()
        try:
            data = read_data(segment.path, segment.header, allocate)
        except (OSError, ValueError) as error:
            log.warning("dropped a file of the disk cache: %s", error)
            self.damaged += 1
            self.remove(segment)
            return None
        if data is not None:
            took_s = max(self._now() - started, 1e-6)
            self._bytes_per_s += _SMOOTHING * (segment.size / took_s - self._bytes_per_s)
        return data

    def touch_like(self, segment: Segment) -> None:
        """The file with this content, if there is one, was of use; remembered through a restart by its time."""
        with self._lock:
            file = self._find(segment)
            if file is not None:
                self._index.touch(file, self._now())
                _set_used(file.path)

    def save(self, segment: RamSegment, done: Callable[[], None]) -> None:
        """Write a segment in the background, which must stay unchanged until `done` is called, on any thread."""

        def job() -> None:
            try:
                self._write(segment)
            except OSError as error:
                log.warning("the disk cache cannot be written: %s", error.strerror)
                self.write_errors += 1
            finally:
                done()

        self._writer.submit(job)

    def was_removed(self, segment: DiskSegment) -> bool:
        with self._lock:
            return segment not in self._index

    def remove(self, segment: DiskSegment) -> None:
        with self._lock:
            self._drop(segment)

    def remove_like(self, segment: Segment) -> None:
        """Remove the file with this content, if there is one."""
        with self._lock:
            file = self._find(segment)
            if file is not None:
                self._drop(file)

    def remove_of(self, owner: OwnerId) -> None:
        """Remove what this owner's conversation has put here."""
        with self._lock:
            for segment in self._index:
                if segment.owner == owner:
                    self._drop(segment)

    def of_domain(self, domain: bytes) -> list[Int32Array]:
        """The tokens of every file of a domain."""
        with self._lock:
            return [s.tokens for s in (*self._index, *self._stuck) if s.domain == domain]

    def forget(self, domain: bytes, tokens: Int32Array, *, keep: int) -> bool:
        """Remove what is part of these; see `Segment.is_part_of`. False if a file of it could not be removed: it serves
        nobody any more, and is tried again when this is."""
        with self._lock:
            for segment in self._index:
                if segment.is_part_of(domain, tokens, keep=keep):
                    self._drop(segment)
            asked = [s for s in self._stuck if s.is_part_of(domain, tokens, keep=keep)]
            self._stuck = [s for s in self._stuck if s not in asked or not _remove(s.path)]
            return not any(s in asked for s in self._stuck)

    def disown(self, owner: OwnerId) -> None:
        """What this owner's conversation has put here is nobody's from now on."""
        with self._lock:
            for segment in self._index:
                if segment.owner == owner:
                    segment.owner = None

    def drain(self, timeout_s: float) -> None:
        """Wait until everything saved so far is written, for at most this long."""
        self._writer.drain(timeout_s)

    def close(self, timeout_s: float) -> None:
        """Finish what is to be written, for at most this long, and give the directory up."""
        if not self._writer.close(timeout_s):
            log.warning("the disk cache was not written to the end within %.1f s", timeout_s)
        self._claim.release()

    def _write(self, source: RamSegment) -> None:
        header = make_header(
            key=self._key, domain=source.domain, start=source.start, tokens=source.tokens, data=source.data
        )
        path = self._directory / file_name(header)
        if source.size > self.limit_bytes:
            return
        with self._lock:
            known = any(s.path == path for s in self._index)
            self._make_room(0 if known else source.size)
        draft, size = write_draft(path, header, source.data)
        with self._lock:
            self.writes += 1
            if source.gone:
                draft.unlink(missing_ok=True)
                return
            # Not before it is known that it is still wanted: nobody reads the draft that a killed process leaves.
            try:
                draft.replace(path)
            except OSError:
                _remove(draft)
                raise
            for other in self._index:
                if other.path == path:
                    self._bytes -= other.size
                    self._index.remove(other)
            self._index.add(
                DiskSegment(source.domain, header.ids, source.start, size, source.owner, self._now(), path, header)
            )
            self._bytes += size
            self._make_room(0)
        sync_directory(self._directory)

    def _make_room(self, n_bytes: int) -> None:
        """Remove files until `n_bytes` more fit: other models' first, then the least recently used."""
        while self._bytes + n_bytes > self.limit_bytes:
            if self._foreign:
                foreign = self._foreign.pop(0)
                _remove(foreign.path)
                self._bytes -= foreign.size
                continue
            oldest = next(iter(self._index), None)
            if oldest is None:
                return
            self._drop(oldest)

    def _find(self, segment: Segment) -> DiskSegment | None:
        for own in self._index:
            same = own.domain == segment.domain and own.start == segment.start
            if same and np.array_equal(own.tokens, segment.tokens):
                return own
        return None

    def _drop(self, segment: DiskSegment) -> None:
        if segment in self._index:
            self._index.remove(segment)
            self._bytes -= segment.size
            if not _remove(segment.path):
                self._stuck.append(segment)

    def _scan(self) -> None:
        """Index what an earlier process has left, the longest unused first."""
        remove_drafts(self._directory)
        for found in segment_files(self._directory):
            if found.whole is None:
                self.damaged += 1
                _remove(found.path)
                continue
            header, offset = found.whole
            size = offset + header.size
            self._bytes += size
            if header.key != self._key:
                self._foreign.append(_Foreign(found.path, size))
                continue
            self._index.add(
                DiskSegment(header.domain, header.ids, header.start, size, None, self._now(), found.path, header)
            )
        self._make_room(0)


def _remove(path: Path) -> bool:
    """Whether it is gone; a file that cannot be removed must not keep the engine from serving."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        log.error("%s in the disk cache cannot be removed: %s", path.name, error.strerror)
        return False
    return True


def _set_used(path: Path) -> None:
    try:
        os.utime(path)
    except OSError:
        log.debug("a file of the disk cache is gone")
