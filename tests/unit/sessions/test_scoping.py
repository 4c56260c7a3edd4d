"""Secrets: scoped keys, domains and the key file."""

from __future__ import annotations

import base64
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warmlane.errors import ConfigError, InvalidRequest
from warmlane.sessions import Purpose, Secrets
from warmlane.sessions.scoping import WARNED_KEYS


def test_a_key_file_is_made_private_and_makes_restarts_agree(tmp_path: Path) -> None:
    path = tmp_path / "data" / "key"
    first, second = Secrets.load(path), Secrets.load(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert first.domain("t") == second.domain("t")
    assert [entry.name for entry in path.parent.iterdir()] == ["key"]


@pytest.mark.skipif(os.name != "posix", reason="file modes")
def test_a_key_file_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "key"
    Secrets.load(path)
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        Secrets.load(path)


@pytest.mark.parametrize("content", [b"", b"short", bytes(33)])
def test_a_damaged_key_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match="32 bytes"):
        Secrets.load(path)


def test_the_secret_is_configured_else_the_files_else_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "key"
    configured = Secrets.open(configured=bytes(32), key_file=path)
    assert not path.exists()
    assert configured.domain("t") == Secrets(bytes(32)).domain("t")
    assert Secrets.open(key_file=path).domain("t") == Secrets.load(path).domain("t")
    assert Secrets.open().domain("t") != Secrets.open().domain("t")


def test_each_purpose_has_its_own_key() -> None:
    secrets = Secrets(bytes(32))
    assert len({secrets.derive(purpose) for purpose in Purpose}) == len(Purpose)


def test_replacing_the_secret_invalidates_keys_domains_and_the_warned_set() -> None:
    secrets = Secrets(bytes(32))
    before = secrets.domain("t"), secrets.scoped_key("t", "a good key"), secrets.warn_once("t", "bad")
    assert not secrets.warn_once("t", "bad")
    secrets.replace(bytes([1] * 32))
    assert secrets.domain("t") != before[0]
    assert secrets.scoped_key("t", "a good key") != before[1]
    assert secrets.warn_once("t", "bad")


names = st.text(max_size=6)


@given(a=st.tuples(names, st.none() | st.text(min_size=1, max_size=6)), b=st.tuples(names, st.none() | names))
def test_domains_are_equal_only_for_the_same_tenant_and_salt(
    a: tuple[str, str | None], b: tuple[str, str | None]
) -> None:
    secrets = Secrets(bytes(32))
    if b[1] == "":
        return
    assert (secrets.domain(*a) == secrets.domain(*b)) == (a == b)
    assert len(secrets.domain(*a)) == 16


@given(a=st.tuples(names, st.text(min_size=8)), b=st.tuples(names, st.text(min_size=8)))
def test_scoped_keys_are_equal_only_for_the_same_tenant_and_key(a: tuple[str, str], b: tuple[str, str]) -> None:
    secrets = Secrets(bytes(32))
    assert (secrets.scoped_key(*a) == secrets.scoped_key(*b)) == (a == b)


@pytest.mark.parametrize("salt", ["", "x" * 257, "é" * 129])
def test_an_empty_or_long_salt_is_refused(salt: str) -> None:
    with pytest.raises(InvalidRequest, match="1 to 256") as caught:
        Secrets(bytes(32)).domain("t", salt)
    assert caught.value.param == "cache_salt"


def test_a_salt_of_256_bytes_and_a_lone_surrogate_are_taken() -> None:
    secrets = Secrets(bytes(32))
    assert secrets.domain("t", "é" * 128) != secrets.domain("t", "\ud800")


@pytest.mark.parametrize("key", [None, "", "1234567"])
def test_short_keys_are_ineligible(key: str | None) -> None:
    secrets = Secrets(bytes(32))
    assert secrets.scoped_key("t", key) is None
    assert secrets.scoped_key("t", "12345678") is not None


def test_an_ineligible_key_warns_once_and_again_after_it_was_forgotten() -> None:
    secrets = Secrets(bytes(32))
    assert secrets.warn_once("t", "bad")
    assert not secrets.warn_once("t", "bad")
    assert secrets.warn_once("other tenant", "bad")
    assert not secrets.warn_once("t", "")
    for n in range(WARNED_KEYS):
        assert secrets.warn_once("t", f"k{n}")
    assert secrets.warn_once("t", "bad")


@given(data=st.binary(max_size=400))
def test_what_is_sealed_comes_back_for_its_domain_alone(data: bytes) -> None:
    secrets = Secrets(bytes(32))
    domain = secrets.domain("t")
    text = secrets.seal(domain, data)
    assert text.isascii()
    assert secrets.unseal(domain, text) == data
    assert secrets.unseal(secrets.domain("t", "salt"), text) is None
    assert secrets.unseal(secrets.domain("other"), text) is None
    assert Secrets(bytes(31) + b"x").unseal(domain, text) is None


def test_two_seals_of_one_text_differ() -> None:
    secrets = Secrets(bytes(32))
    assert secrets.seal(b"d" * 16, b"said") != secrets.seal(b"d" * 16, b"said")


@given(at=st.integers(min_value=0), put=st.integers(min_value=1, max_value=255))
def test_a_changed_seal_is_not_opened(at: int, put: int) -> None:
    secrets = Secrets(bytes(32))
    raw = bytearray(base64.urlsafe_b64decode(secrets.seal(b"d" * 16, b"what was thought")))
    raw[at % len(raw)] ^= put
    assert secrets.unseal(b"d" * 16, base64.urlsafe_b64encode(raw).decode()) is None


@pytest.mark.parametrize("text", ["", "gAAAA", "foreign", "=", "é", "A" * 12, "A" * 16, "A" * 400, "x y", "\ud800"])
def test_what_nobody_sealed_here_is_not_opened(text: str) -> None:
    assert Secrets(bytes(32)).unseal(b"d" * 16, text) is None
