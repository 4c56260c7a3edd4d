"""Who is asking: API keys and the tenants they stand for."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass

from warmlane.errors import Unauthorized

Headers = Iterable[tuple[bytes, bytes]]

_BEARER = b"bearer "


@dataclass(frozen=True, slots=True)
class ApiKey:
    """One key and the tenant whose data it opens. Several keys may name one tenant. An `admin` key sees the sessions of
    every tenant besides; its own turns belong to its tenant alone."""

    key: str
    tenant: str
    admin: bool = False


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a request speaks for."""

    tenant: str
    admin: bool = False

    @property
    def sees(self) -> str | None:
        """The tenant whose sessions this caller may see; None for all."""
        return None if self.admin else self.tenant


class KeyRing:
    """The keys of this server. Without any there is one tenant, `""`, its own admin, and whatever key a client sends is
    accepted."""

    def __init__(self, keys: Iterable[ApiKey] = ()) -> None:
        self.replace(keys)

    def replace(self, keys: Iterable[ApiKey]) -> None:
        """Use other keys from the next request on; requests that were let in run on."""
        self._keys = tuple((_digest(entry.key.encode()), Identity(entry.tenant, entry.admin)) for entry in keys)

    def __len__(self) -> int:
        return len(self._keys)

    def identify(self, headers: Headers) -> Identity:
        """Who a request speaks for, by `Authorization: Bearer` or `x-api-key`.

        Every key is compared, in constant time and by digest, so that neither the time nor the length tells which
        one came close. Raises `Unauthorized`.
        """
        if not self._keys:
            return Identity("", admin=True)
        offered = _offered(headers)
        if not offered:
            raise Unauthorized("No API key was given. Send it as 'Authorization: Bearer KEY' or 'x-api-key: KEY'.")
        found: Identity | None = None
        for digest in (_digest(key) for key in offered):
            for known, identity in self._keys:
                if hmac.compare_digest(known, digest):
                    found = identity
        if found is None:
            raise Unauthorized("Incorrect API key provided.")
        return found


def _offered(headers: Headers) -> list[bytes]:
    keys = []
    for name, value in headers:
        if name == b"x-api-key":
            keys.append(value.strip())
        elif name == b"authorization" and value[: len(_BEARER)].lower() == _BEARER:
            keys.append(value[len(_BEARER) :].strip())
    return keys


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
