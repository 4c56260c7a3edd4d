"""Which domains an erasure knows of."""

from __future__ import annotations

from warmlane.turns.domains import KnownDomains

A, B, C, D = (bytes([n]) * 16 for n in range(4))


def test_each_tenant_has_a_bound_of_its_own() -> None:
    known = KnownDomains(limit=2)
    known.note("bob", D)
    for domain in (A, B, A, C):
        known.note("ann", domain)
    assert known.owe("ann") == {A, C}
    assert known.owe("bob") == {D}


def test_what_is_owed_stays_until_it_is_paid() -> None:
    known = KnownDomains(limit=1)
    known.note("ann", A)
    owed = known.owe("ann", [B])
    for domain in (C, D):
        known.note("ann", domain)
    assert known.owe("ann") == {A, B, D}
    known.paid("ann", owed)
    assert known.owe("ann") == {D}


def test_what_is_noted_while_the_rest_is_forgotten_stays_known() -> None:
    known = KnownDomains()
    known.note("ann", A)
    owed = known.owe("ann")
    known.note("ann", A)
    known.paid("ann", owed)
    assert known.owe("ann") == {A}
