"""In which security domains tenants had something prefilled: what an erasure must ask the engines to forget."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

MAX_DOMAINS: Final = 10_000


class KnownDomains:
    """Each tenant's domains, at most `limit` of them: of a tenant that had more, the least recently used are not known
    any more. Those that are owed stay until they are paid."""

    def __init__(self, *, limit: int = MAX_DOMAINS) -> None:
        self._noted: dict[str, OrderedDict[bytes, None]] = {}
        self._owed: dict[str, frozenset[bytes]] = {}
        self._limit = limit

    def note(self, tenant: str, domain: bytes) -> None:
        """Something is prefilled there now."""
        mine = self._noted.setdefault(tenant, OrderedDict())
        mine[domain] = None
        mine.move_to_end(domain)
        if len(mine) > self._limit:
            mine.popitem(last=False)

    def owe(self, tenant: str, domains: Iterable[bytes] = ()) -> frozenset[bytes]:
        """All that is to be forgotten of a tenant: what was noted, what is owed from before, and `domains`. It stays
        owed; what is noted from now on is another matter."""
        owed = self._owed.get(tenant, frozenset()).union(self._noted.pop(tenant, ()), domains)
        self._owed[tenant] = owed
        return owed

    def paid(self, tenant: str, domains: frozenset[bytes]) -> None:
        """These were forgotten everywhere."""
        left = self._owed.pop(tenant, frozenset()) - domains
        if left:
            self._owed[tenant] = left
