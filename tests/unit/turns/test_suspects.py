"""A turn that kills its worker is refused; one that only stood beside it is not."""

from __future__ import annotations

import numpy as np
import pytest

from warmlane.errors import EngineDied, InvalidRequest
from warmlane.turns.suspects import REMEMBERED, Suspects, fingerprint


def turn(domain: str, *ids: int) -> bytes:
    return fingerprint(domain.encode() * 16, np.asarray(ids, np.int32))


A, B = turn("d", 1, 2, 3), turn("d", 1, 2, 4)


def die(suspects: Suspects, *turns: bytes, killed: bool = False) -> None:
    """The worker dies while these turns run."""
    held = [suspects.watched(turn) for turn in turns]
    for one in held:
        one.__enter__()
    suspects.worker_died(killed=killed)
    for one in held:
        one.__exit__(EngineDied, EngineDied("dead"), None)


def test_twice_alone_is_refused() -> None:
    suspects = Suspects()
    die(suspects, A)
    suspects.check(A)
    die(suspects, A)
    with pytest.raises(InvalidRequest):
        suspects.check(A)
    suspects.check(B)


def test_blame_is_shared_and_success_clears_it() -> None:
    suspects = Suspects()
    for _ in range(3):
        die(suspects, A, B)
    suspects.check(A)
    with suspects.watched(B):
        pass
    die(suspects, A, B)
    suspects.check(B)
    with pytest.raises(InvalidRequest):
        suspects.check(A)


def test_a_kill_counts_little() -> None:
    suspects = Suspects()
    for _ in range(7):
        die(suspects, A, killed=True)
    suspects.check(A)
    die(suspects, A, killed=True)
    with pytest.raises(InvalidRequest):
        suspects.check(A)


def test_the_same_prompt_of_another_domain_is_another_turn() -> None:
    assert turn("e", 1, 2, 3) != A


def test_only_so_many_are_remembered() -> None:
    suspects = Suspects()
    for _ in range(2):
        die(suspects, A)
    for n in range(REMEMBERED):
        die(suspects, turn("d", n))
    suspects.check(A)
