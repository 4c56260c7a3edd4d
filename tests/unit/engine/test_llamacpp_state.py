"""Snapshots as llama.cpp writes them, made by hand: what is of another kind is left alone."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warmlane.engine.backends.base import ByteArray
from warmlane.engine.backends.llamacpp_state import cut, join

N_LAYERS = 2
KEY_BYTES = 6
VALUE_ROWS = 3


def snapshot(positions: list[int], *, transposed: bool, streams: int = 1, more: bytes = b"") -> ByteArray:
    """Cells at these positions, all of whose bytes tell where they belong."""
    data = struct.pack("<IiII", 0xABCD, 7, streams, len(positions))
    data += b"".join(struct.pack("<iIi", position, 1, 7) + more for position in positions)
    data += struct.pack("<II", transposed, N_LAYERS)
    for layer in range(N_LAYERS):
        data += struct.pack("<iQ", 1, KEY_BYTES)
        data += b"".join(bytes([layer, p, 1, 2, 3, 4]) for p in positions)
    for layer in range(N_LAYERS):
        if transposed:
            data += struct.pack("<iII", 1, 2, VALUE_ROWS)
            data += b"".join(bytes([16 * layer + row, p]) for row in range(VALUE_ROWS) for p in positions)
        else:
            data += struct.pack("<iQ", 1, 2)
            data += b"".join(bytes([16 * layer, p]) for p in positions)
    return np.frombuffer(data, dtype=np.uint8)


def new(n_bytes: int) -> ByteArray:
    return np.empty(n_bytes, dtype=np.uint8)


@settings(deadline=None)
@given(cuts=st.sets(st.integers(1, 19), max_size=6), transposed=st.booleans())
def test_pieces_join_to_the_whole_and_are_cut_from_it(cuts: set[int], transposed: bool) -> None:
    ends = [*sorted(cuts), 20]
    ranges = list(zip([0, *ends[:-1]], ends, strict=True))
    parts = [snapshot(list(range(*r)), transposed=transposed) for r in ranges]
    whole = snapshot(list(range(20)), transposed=transposed)
    joined = join(parts, new)
    assert joined is not None
    assert joined.tobytes() == whole.tobytes()
    for (begin, end), part in zip(ranges, parts, strict=True):
        some = cut(whole, begin, end)
        assert some is not None
        assert some.tobytes() == (part if end - begin < 10 else whole).tobytes()


def test_cells_are_cut_by_position_wherever_they_are() -> None:
    some = cut(snapshot([5, 9, 3, 4, 8], transposed=True), 4, 6)
    assert some is not None
    assert some.tobytes() == snapshot([5, 4], transposed=True).tobytes()
    assert cut(snapshot([5, 9], transposed=True), 6, 9) is None


OTHERS = {
    "empty": snapshot([], transposed=True),
    "streams": snapshot([1, 2], transposed=True, streams=2),
    "positions of several dimensions": snapshot([1, 2], transposed=True, more=b"12345678"),
    "short": snapshot([1, 2], transposed=True)[:-1],
    "long": np.concatenate([snapshot([1, 2], transposed=False), np.zeros(3, dtype=np.uint8)]),
    "a few bytes": np.zeros(5, dtype=np.uint8),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_of_another_kind_is_neither_joined_nor_cut(name: str) -> None:
    assert cut(OTHERS[name], 0, 10) is None
    assert join([snapshot([0], transposed=True), OTHERS[name]], new) is None


def test_what_is_not_alike_is_not_joined() -> None:
    assert join([snapshot([0], transposed=True), snapshot([1], transposed=False)], new) is None
    assert join([], new) is None
    assert join([snapshot([0], transposed=True), snapshot([1], transposed=True)], lambda n: None) is None
