"""Making the server forget: a whole tenant, or what the store has pruned."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Iterable

from warmlane.errors import EngineError
from warmlane.host import Binding
from warmlane.store import Erased, StoredTurn
from warmlane.turns.parts import SpineParts

log = logging.getLogger(__name__)

MAX_DOMAINS = 10_000


class KnownDomains:
    """The security domains in which tenants were served lately, the least recently used forgotten first."""

    def __init__(self, *, limit: int = MAX_DOMAINS) -> None:
        self._domains: OrderedDict[tuple[str, bytes], None] = OrderedDict()
        self._limit = limit

    def note(self, tenant: str, domain: bytes) -> bytes:
        self._domains[tenant, domain] = None
        self._domains.move_to_end((tenant, domain))
        if len(self._domains) > self._limit:
            self._domains.popitem(last=False)
        return domain

    def take(self, tenant: str) -> frozenset[bytes]:
        """This tenant's domains, which are forgotten."""
        mine = [key for key in self._domains if key[0] == tenant]
        for key in mine:
            del self._domains[key]
        return frozenset(domain for _, domain in mine)


def drop_warm(parts: SpineParts, response_ids: Iterable[str], tenant: str | None) -> bool:
    """End the warm sessions of these responses, and free their cells in every tier. True if there was one."""
    ids = tuple(response_ids)
    parts.traces.forget(ids)
    dropped = [b.registry.drop(i, tenant=tenant) for b in parts.host.bindings() for i in ids]
    return any(dropped)


async def forget_turn(parts: SpineParts, row: StoredTurn, before: StoredTurn | None) -> None:
    """Free what the tiers still keep of a response that was deleted after its session had gone. `before` is the
    response it continued: what both share stays.

    Of models that are loaded only; an engine that is down is asked no further.
    """
    sampled = None if row.outcome is None else row.outcome.message.sampled
    if row.outcome is None or sampled is None or not row.domain:
        return
    kept = 0
    if before is not None and before.outcome is not None:
        kept = before.outcome.usage.prompt_tokens + before.outcome.usage.output_tokens
    at = row.outcome.usage.prompt_tokens
    for binding in parts.host.bindings():
        if binding.name == row.model:
            try:
                await binding.engine.forget(row.domain, sampled.token_ids, at=at, keep=min(kept, at))
            except EngineError as error:
                log.warning("the engine of %s did not forget a response: %s", binding.name, error)


async def erase_tenant(parts: SpineParts, tenant: str, domains: frozenset[bytes]) -> Erased:
    """Delete everything of a tenant: rows, warm sessions, KV in every tier of the models that are loaded, and what is
    remembered of its turns. `domains` are those it was served in, besides those its rows know.

    Its running turns must have been told to stop. Raises `StoreUnavailable`; what is left can be asked for again.
    """
    erased = await parts.store.erase(tenant)
    domains |= erased.domains | {parts.secrets.domain(tenant, None)}
    warm = [card.id for card in parts.host.sessions(tenant)]
    drop_warm(parts, [*erased.response_ids, *warm], tenant)
    for domain in domains:
        parts.ledger.forget(domain)
        parts.traces.forget_domain(domain)
    await asyncio.gather(*(_forget(binding, domains) for binding in parts.host.bindings()))
    return erased


async def _forget(binding: Binding, domains: Iterable[bytes]) -> None:
    await binding.registry.flush_disposals()
    try:
        for domain in domains:
            await binding.engine.forget(domain)
    except EngineError as error:
        # A worker that is gone took what was in memory along; its files are read by the next, and asked for again.
        log.warning("the engine of %s did not forget a tenant: %s", binding.name, error)
