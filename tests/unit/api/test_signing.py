"""Signatures over what clients keep for us."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from warmlane.api.signing import KEY_BYTES, Signer, Verdict

SIGNER = Signer(bytes(KEY_BYTES))


@given(st.text())
def test_a_text_of_ours_is_genuine(text: str) -> None:
    assert SIGNER.verdict(text, SIGNER.sign(text)) is Verdict.GENUINE
    assert Signer(bytes(KEY_BYTES)).sign(text) == SIGNER.sign(text)


def test_a_text_that_was_changed_is_altered() -> None:
    assert SIGNER.verdict("hn", SIGNER.sign("hm")) is Verdict.ALTERED
    assert SIGNER.verdict("hm", SIGNER.sign("hm")[:-1]) is Verdict.ALTERED
    assert SIGNER.verdict("hm", "wl1.ü") is Verdict.ALTERED


def test_another_secret_signs_otherwise() -> None:
    assert SIGNER.verdict("hm", Signer(b"x" * KEY_BYTES).sign("hm")) is Verdict.ALTERED
    assert Signer().sign("hm") != Signer().sign("hm")


def test_what_is_not_ours() -> None:
    assert SIGNER.verdict("hm", "EqQBCgIYAh") is Verdict.FOREIGN
    assert SIGNER.verdict("hm", "") is Verdict.UNSIGNED
    assert SIGNER.verdict("hm", None) is Verdict.UNSIGNED
