"""Flat or paged, judged by what an engine reports."""

from __future__ import annotations

import pytest

from support.owner_engine import OwnerEngine
from warmlane.sessions import effective_capacity, is_paged


@pytest.mark.parametrize(
    ("block_paged", "capacity", "effective"),
    [
        (True, 2, 2),
        (True, 8, 8),
        (True, 1, 1),
        (True, 0, 1),
        (True, -4, 1),
        (True, True, 1),
        (True, 8.0, 1),
        (True, "8", 1),
        (True, None, 1),
        (False, 8, 1),
        (1, 8, 1),
        ("yes", 8, 1),
        (None, 8, 1),
    ],
)
def test_paged_means_block_paged_and_an_int_capacity_of_two(
    block_paged: object, capacity: object, effective: int
) -> None:
    engine = OwnerEngine(capacity=capacity)
    engine.block_paged = block_paged
    assert effective_capacity(engine) == effective
    assert is_paged(engine) == (effective > 1)
