"""One secret, and what is derived from it: scoped cache keys, security domains, keys for other purposes.

Raw cache keys and salts exist only inside the calls that take them; they are never stored, logged or sent on.
"""

from __future__ import annotations

import base64
import binascii
import os
import secrets
import stat
import zlib
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hmac import HMAC
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from warmlane.errors import ConfigError, InvalidRequest

SECRET_BYTES = 32
DIGEST_BYTES = 16
MIN_KEY_CHARS = 8
"""Shorter cache keys are ineligible: they collide by accident."""
MAX_SALT_BYTES = 256
WARNED_KEYS = 256
_FRAME_BYTES = 8
_NONCE_BYTES = 12
_UNSALTED, _SALTED = b"-", b"+"


class Purpose(StrEnum):
    """HKDF labels (RFC 5869 `info`), one for each use of the secret."""

    CACHE_KEY = "warmlane/cache-key"
    DOMAIN = "warmlane/domain"
    WARNED = "warmlane/warned-key"
    SEALED = "warmlane/sealed"
    SIGNATURE = "warmlane/signature"


def _framed(field: str) -> bytes:
    """A field in UTF-8 behind its length, so that no two sequences of fields have equal bytes. Lone surrogates, which
    JSON can carry, are encoded too."""
    raw = field.encode("utf-8", "surrogatepass")
    return len(raw).to_bytes(_FRAME_BYTES, "big") + raw


def _keyed(hasher: HMAC, message: bytes) -> bytes:
    """128 bits of HMAC-SHA256 (RFC 2104). A copy of a keyed hasher costs a third of a fresh one."""
    mac = hasher.copy()
    mac.update(message)
    return mac.finalize()[:DIGEST_BYTES]


class Secrets:
    """The process's secret K (32 bytes), shared by every registry. `replace` is a seam for tests."""

    def __init__(self, secret: bytes) -> None:
        self._install(secret)

    @classmethod
    def in_memory(cls) -> Secrets:
        """A random secret that ends with the process: a restart then shares no domain with this run."""
        return cls(secrets.token_bytes(SECRET_BYTES))

    @classmethod
    def load(cls, path: Path) -> Secrets:
        """The secret in a key file, which is made at random with mode 0600 if there is none.

        Raises `ConfigError` if the file cannot be used, or can be read by others.
        """
        try:
            with suppress(FileExistsError):
                _create(path)
            with path.open("rb") as file:
                mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
                secret = file.read(SECRET_BYTES + 1)
        except OSError as error:
            raise ConfigError(f"The key file {path} cannot be used: {error.strerror}.") from error
        if os.name == "posix" and mode & 0o077:
            raise ConfigError(f"The key file {path} can be read by others (mode {mode:04o}); run: chmod 600 {path}")
        if len(secret) != SECRET_BYTES:
            raise ConfigError(f"The key file {path} must hold {SECRET_BYTES} bytes; remove it to have a new one made.")
        return cls(secret)

    @classmethod
    def open(cls, *, configured: bytes | None = None, key_file: Path | None = None) -> Secrets:
        """The configured secret, else the key file's, else one in memory only."""
        if configured is not None:
            return cls(configured)
        return cls.load(key_file) if key_file is not None else cls.in_memory()

    def replace(self, secret: bytes) -> None:
        """Use another secret: scoped keys and domains made before match nothing made after, and every ineligible key
        may warn again."""
        self._install(secret)

    def derive(self, purpose: Purpose) -> bytes:
        """The 32-byte key of one purpose."""
        return HKDF(algorithm=SHA256(), length=SECRET_BYTES, salt=None, info=purpose.encode()).derive(self._secret)

    def scoped_key(self, tenant: str, key: str | None) -> bytes | None:
        """128 bits that stand for this tenant's cache key; None for no key or one that is too short."""
        if key is None or len(key) < MIN_KEY_CHARS:
            return None
        return _keyed(self._cache_key, _framed(tenant) + _framed(key))

    def domain(self, tenant: str, salt: str | None = None) -> bytes:
        """The 16-byte security domain of a tenant, narrowed by the client's `cache_salt` if there is one.

        Raises `InvalidRequest` for an empty salt and one over 256 bytes of UTF-8.
        """
        if salt is None:
            return _keyed(self._domain, _framed(tenant) + _UNSALTED)
        framed = _framed(salt)
        size = len(framed) - _FRAME_BYTES
        if not 0 < size <= MAX_SALT_BYTES:
            raise InvalidRequest(
                f"cache_salt has {size} bytes; it must have 1 to {MAX_SALT_BYTES}, or be left out.", param="cache_salt"
            )
        return _keyed(self._domain, _framed(tenant) + _SALTED + framed)

    def warn_once(self, tenant: str, key: str) -> bool:
        """Whether an ineligible key is new and should be warned about. Remembers 256 of them, as HMACs; the oldest is
        forgotten and may warn again. The empty key never warns."""
        if not key:
            return False
        digest = _keyed(self._warned_key, _framed(tenant) + _framed(key))
        if digest in self._warned:
            return False
        self._warned[digest] = None
        if len(self._warned) > WARNED_KEYS:
            del self._warned[next(iter(self._warned))]
        return True

    def seal(self, domain: bytes, data: bytes) -> str:
        """`data` as text that a client may carry: compressed, encrypted and bound to the domain (AES-256-GCM)."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return base64.urlsafe_b64encode(nonce + self._sealing.encrypt(nonce, zlib.compress(data), domain)).decode()

    def unseal(self, domain: bytes, text: str) -> bytes | None:
        """What `seal` was given; None for a text that this secret did not seal for this domain, or that was changed."""
        try:
            raw = base64.b64decode(text.encode("ascii"), altchars=b"-_", validate=True)
            if len(raw) <= _NONCE_BYTES:
                return None
            return zlib.decompress(self._sealing.decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], domain))
        except (UnicodeEncodeError, binascii.Error, InvalidTag):
            return None

    def _install(self, secret: bytes) -> None:
        if len(secret) != SECRET_BYTES:
            raise ConfigError(f"The secret has {len(secret)} bytes; it must have {SECRET_BYTES}.")
        self._secret = secret
        self._cache_key = HMAC(self.derive(Purpose.CACHE_KEY), SHA256())
        self._domain = HMAC(self.derive(Purpose.DOMAIN), SHA256())
        self._warned_key = HMAC(self.derive(Purpose.WARNED), SHA256())
        self._sealing = AESGCM(self.derive(Purpose.SEALED))
        self._warned: dict[bytes, None] = {}


def _create(path: Path) -> None:
    """Make the key file whole or not at all: two processes that start at once agree on one secret."""
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(SECRET_BYTES))
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, path)
    finally:
        draft.unlink()
