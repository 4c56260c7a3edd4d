"""One snapshot in one file.

Layout: magic, header length and CRC-32 (8 little-endian bytes), the header in msgpack, the snapshot. The header names
what the snapshot belongs to and carries the snapshot's size and CRC-32; a file is whole or it is not used.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import zlib
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from warmlane.engine.backends.base import Allocate, ByteArray
from warmlane.engine.vectors import Int32Array

log = logging.getLogger(__name__)

SUFFIX = ".kv"
DRAFT_SUFFIX = ".tmp"
_STEM = re.compile("[0-9a-f]{40}")
_MAGIC = b"WLANEKV1"
_FIXED_BYTES = len(_MAGIC) + 8


class Header(msgspec.Struct, frozen=True):
    """`key` names the model and everything else a snapshot depends on; `tokens` are little-endian int32."""

    key: bytes
    domain: bytes
    start: int
    tokens: bytes
    size: int
    checksum: int

    @property
    def ids(self) -> Int32Array:
        return np.frombuffer(self.tokens, dtype="<i4").astype(np.int32, copy=False)


@dataclass(frozen=True, slots=True)
class Found:
    """A file of ours, as it lies in a directory; `whole` is its header and the offset of its snapshot, None if the file
    is damaged. `used_ns` is when it was last of use."""

    path: Path
    used_ns: int
    whole: tuple[Header, int] | None


def make_header(*, key: bytes, domain: bytes, start: int, tokens: Int32Array, data: ByteArray) -> Header:
    """The header of a file that holds `data`; reads all of it for the checksum."""
    return Header(key, domain, start, tokens.astype("<i4").tobytes(), int(data.size), zlib.crc32(data.data))


def file_name(header: Header) -> str:
    """The same for equal contents, so that nothing is stored twice."""
    digest = hashlib.sha256(b"".join((header.key, header.domain, header.start.to_bytes(8, "little"), header.tokens)))
    return digest.hexdigest()[:40] + SUFFIX


def write_draft(path: Path, header: Header, data: ByteArray) -> tuple[Path, int]:
    """Write what is to be the file, readable by its owner alone; returns where it is until it is published, and its
    size in bytes. Raises OSError."""
    draft = path.with_suffix(DRAFT_SUFFIX)
    head = msgspec.msgpack.encode(header)
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb", buffering=0) as file:
            file.write(_MAGIC + len(head).to_bytes(4, "little") + zlib.crc32(head).to_bytes(4, "little") + head)
            view = data.data
            while len(view):
                view = view[file.write(view) :]
            os.fsync(file.fileno())
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    return draft, _FIXED_BYTES + len(head) + int(data.size)


def segment_files(directory: Path) -> list[Found]:
    """Our files in a directory, the longest unused first; none where there is no directory. A file is ours if it begins
    as ours do or is named as ours are: anything else is left alone. Raises OSError if the directory cannot be read."""
    found = [f for path in _regular_files(directory, SUFFIX) if (f := _look_at(path)) is not None]
    return sorted(found, key=lambda f: (f.used_ns, f.path))


def remove_drafts(directory: Path) -> None:
    """Remove what a process that was killed has left half-written. Raises OSError."""
    for path in _regular_files(directory, DRAFT_SUFFIX):
        if _STEM.fullmatch(path.stem):
            path.unlink(missing_ok=True)


def _regular_files(directory: Path, suffix: str) -> list[Path]:
    """Of that suffix; not through links, which may lead anywhere."""
    found: list[Path] = []
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.name.endswith(suffix) and entry.is_file(follow_symlinks=False):
                    found.append(Path(entry.path))
                elif entry.name.endswith(suffix):
                    log.warning("%s in the disk cache is no regular file; it is left alone", entry.name)
    except FileNotFoundError:
        return []
    return found


def _look_at(path: Path) -> Found | None:
    begin, used_ns = b"", 0
    try:
        with path.open("rb") as file:
            begin = file.read(len(_MAGIC))
            used_ns = os.fstat(file.fileno()).st_mtime_ns
    except FileNotFoundError:
        return None
    except OSError as error:
        log.warning("%s in the disk cache cannot be read: %s", path.name, error.strerror)
    if begin != _MAGIC and not _STEM.fullmatch(path.stem):
        log.warning("%s in the disk cache is not one of its files; it is left alone", path.name)
        return None
    return Found(path, used_ns, read_header(path))


def read_header(path: Path) -> tuple[Header, int] | None:
    """The header and the offset of the snapshot; None if the file is not one of ours, or not all there."""
    try:
        with path.open("rb") as file:
            fixed = file.read(_FIXED_BYTES)
            n = int.from_bytes(fixed[8:12], "little")
            size = os.fstat(file.fileno()).st_size
            if fixed[:8] != _MAGIC or n > size:
                return None
            head = file.read(n)
    except OSError:
        return None
    if len(head) != n or zlib.crc32(head) != int.from_bytes(fixed[12:16], "little"):
        return None
    try:
        header = msgspec.msgpack.decode(head, type=Header)
    except msgspec.DecodeError:
        return None
    offset = _FIXED_BYTES + n
    if size != offset + header.size or len(header.tokens) % 4 or not 0 <= header.start < len(header.tokens) // 4:
        return None
    return header, offset


def read_data(path: Path, header: Header, allocate: Allocate) -> ByteArray | None:
    """The snapshot of a file whose header was `header` when it was indexed. None if `allocate` gives no room. Raises
    ValueError if the file is another one now, or damaged, and OSError."""
    data = allocate(header.size)
    if data is None:
        return None
    found = read_header(path)
    if found is None or found[0] != header:
        raise ValueError("the file is not the one that was indexed")
    with path.open("rb", buffering=0) as file:
        file.seek(found[1])
        view = data.data
        while len(view):
            n = file.readinto(view)
            if not n:
                raise ValueError("the file ends early")
            view = view[n:]
    if zlib.crc32(data.data) != header.checksum:
        raise ValueError("the checksum does not fit")
    return data


def sync_directory(directory: Path) -> None:
    """Make a rename last through a power cut."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
