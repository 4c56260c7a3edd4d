"""The bytes of a sequence's snapshot as llama.cpp writes them, as far as it takes to join several and to cut one.

Read off `llama_kv_cache::state_write` of the pinned version; all numbers are little-endian. One stream of cells:

    magic u32, sequence i32, streams u32 (1), cells u32; per cell: position i32, sequences u32 (1), sequence i32
    transposed u32, layers u32
    per layer, keys: type i32, bytes per cell u64; the cells' rows
    per layer, values: the same, or if transposed: type i32, element bytes u32, rows u32; per row the cells' elements

Whatever else a model's cells carry makes another size, so that it is noticed.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from warmlane.engine.backends.base import Allocate, ByteArray

_HEAD: Final = struct.Struct("<IiII")
_LAYERS: Final = struct.Struct("<II")
_ROWS: Final = struct.Struct("<iQ")
_TRANSPOSED_ROWS: Final = struct.Struct("<iII")
_CELL_BYTES: Final = 12


@dataclass(frozen=True, slots=True)
class _Block:
    """A layer's keys or values in a snapshot: `n_rows` rows of `bytes_per_cell` for each cell, from `begin` on."""

    heading: bytes
    begin: int
    n_rows: int
    bytes_per_cell: int


def join(parts: Sequence[ByteArray], allocate: Allocate) -> ByteArray | None:
    """See `Backend.joined`."""
    layouts = [_blocks(part) for part in parts]
    first = layouts[0] if layouts else None
    if first is None or not all(layout is not None and _alike(layout, first) for layout in layouts):
        return None
    counts = [_n_cells(part) for part in parts]
    frame = _HEAD.size + _LAYERS.size + _ROWS.size * len(first)
    size = sum(part.size for part in parts) - (len(parts) - 1) * frame
    data = allocate(size)
    if data is None:
        return None
    magic, sequence, streams, _ = _HEAD.unpack_from(parts[0].data)
    at = _put(data, 0, _HEAD.pack(magic, sequence, streams, sum(counts)))
    for part, n in zip(parts, counts, strict=True):
        at = _put(data, at, part[_HEAD.size : _HEAD.size + n * _CELL_BYTES])
    behind = _HEAD.size + counts[0] * _CELL_BYTES
    at = _put(data, at, parts[0][behind : behind + _LAYERS.size])
    for index, block in enumerate(first):
        at = _put(data, at, block.heading)
        n_bytes = block.n_rows * block.bytes_per_cell * sum(counts)
        rows = data[at : at + n_bytes].reshape(block.n_rows, block.bytes_per_cell * sum(counts))
        column = 0
        for part, layout, n in zip(parts, layouts, counts, strict=True):
            assert layout is not None
            begin, width = layout[index].begin, block.bytes_per_cell * n
            rows[:, column : column + width] = part[begin : begin + block.n_rows * width].reshape(block.n_rows, width)
            column += width
        at += n_bytes
    return data


def cut(data: ByteArray, begin: int, end: int) -> ByteArray | None:
    """A snapshot of those of its cells that are at the positions from `begin` to `end`; itself if these are half of
    them, which a copy would not be worth. None if it is of a kind that cannot be cut, or has none of them."""
    blocks = _blocks(data)
    if blocks is None:
        return None
    n = _n_cells(data)
    behind = _HEAD.size + n * _CELL_BYTES
    cells = data[_HEAD.size : behind].reshape(n, _CELL_BYTES)
    positions = np.ascontiguousarray(cells[:, :4]).view("<i4")[:, 0]
    wanted = np.flatnonzero((positions >= begin) & (positions < end))
    if not wanted.size:
        return None
    if 2 * wanted.size >= n:
        return data
    magic, sequence, streams, _ = _HEAD.unpack_from(data.data)
    pieces = [_bytes(_HEAD.pack(magic, sequence, streams, wanted.size)), cells[wanted].ravel()]
    pieces.append(data[behind : behind + _LAYERS.size])
    for block in blocks:
        rows = data[block.begin : block.begin + block.n_rows * block.bytes_per_cell * n]
        pieces.append(_bytes(block.heading))
        pieces.append(rows.reshape(block.n_rows, n, block.bytes_per_cell)[:, wanted].ravel())
    return np.concatenate(pieces)


def _bytes(piece: bytes) -> ByteArray:
    return np.frombuffer(piece, dtype=np.uint8)


def _put(data: ByteArray, at: int, piece: bytes | ByteArray) -> int:
    values = _bytes(piece) if isinstance(piece, bytes) else piece
    data[at : at + values.size] = values
    return at + int(values.size)


def _n_cells(part: ByteArray) -> int:
    return int(_HEAD.unpack_from(part.data)[3])


def _alike(a: list[_Block], b: list[_Block]) -> bool:
    return [block.heading for block in a] == [block.heading for block in b]


def _blocks(part: ByteArray) -> list[_Block] | None:
    """Where keys and values lie; None if the snapshot is of another kind."""
    try:
        return _read_blocks(part)
    except struct.error:
        return None


def _read_blocks(part: ByteArray) -> list[_Block] | None:
    _, _, n_streams, n_cells = _HEAD.unpack_from(part.data)
    if n_streams != 1 or n_cells == 0:
        return None
    at = _HEAD.size + n_cells * _CELL_BYTES
    transposed, n_layers = _LAYERS.unpack_from(part.data, at)
    at += _LAYERS.size
    if transposed not in (0, 1):
        return None
    blocks = []
    for index in range(2 * n_layers):
        if transposed and index >= n_layers:
            _, bytes_per_cell, n_rows = _TRANSPOSED_ROWS.unpack_from(part.data, at)
        else:
            n_rows, bytes_per_cell = 1, _ROWS.unpack_from(part.data, at)[1]
        begin = at + _ROWS.size
        blocks.append(_Block(part[at:begin].tobytes(), begin, n_rows, bytes_per_cell))
        at = begin + n_rows * bytes_per_cell * n_cells
        if at > part.size:
            return None
    return blocks if at == part.size else None
