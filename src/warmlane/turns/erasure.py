"""Making the server forget: a whole tenant, or what the store has pruned."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from warmlane.errors import EngineError, Unavailable
from warmlane.host import Binding
from warmlane.store import Erased, StoredTurn
from warmlane.turns.parts import SpineParts

log = logging.getLogger(__name__)


def drop_warm(parts: SpineParts, response_ids: Iterable[str], tenant: str | None) -> bool:
    """End the warm sessions of these responses, and free their cells in every tier. True if there was one."""
    ids = tuple(response_ids)
    parts.traces.forget(ids)
    dropped = [b.registry.drop(i, tenant=tenant) for b in parts.host.bindings() for i in ids]
    return any(dropped)


async def forget_turn(parts: SpineParts, row: StoredTurn, before: StoredTurn | None) -> None:
    """Free what the tiers still keep of a response that was deleted after its session had gone, or that never had one.
    `before` is the response it continued: what both share stays.

    Of models that are loaded only; an engine that is down is asked no further. Where it is not known what was
    prefilled, all of its domain goes.
    """
    kept = 0
    if before is not None and before.outcome is not None:
        kept = before.outcome.usage.prompt_tokens + before.outcome.usage.output_tokens
    prefilled = _prefilled(parts, row, kept)
    if prefilled is None or not row.domain:
        return
    prompt, at = prefilled
    for binding in parts.host.bindings():
        if binding.name == row.model:
            try:
                await binding.engine.forget(row.domain, prompt, at=at, keep=min(kept, at))
            except EngineError as error:
                log.warning("the engine of %s did not forget a response: %s", binding.name, error)


def _prefilled(parts: SpineParts, row: StoredTurn, keep: int) -> tuple[bytes, int] | None:
    """Digest and length of what its KV begins with; None if it has none."""
    if row.outcome is not None:
        return row.outcome.cache.prompt, row.outcome.usage.prompt_tokens - 1
    left = parts.leftovers.take(row.id, created_at=row.created_at)
    return None if left is None else left.prompt(keep)


async def erase_tenant(parts: SpineParts, tenant: str) -> Erased:
    """Delete everything of a tenant: rows, warm sessions, KV in every tier, of models that are not loaded too, and what
    is remembered of its turns.

    Its running turns must have been told to stop. Raises `StoreUnavailable`, and `Unavailable` if not all of the KV
    could be removed; what is left can be asked for again.
    """
    warm = [domain for binding in parts.host.bindings() for domain in binding.registry.domains(tenant)]
    # Before the first rows go, which alone may name them: an erasure that ends halfway is asked for again.
    parts.domains.owe(tenant, [*warm, parts.secrets.domain(tenant, None), *await parts.store.domains(tenant)])
    erased = await parts.store.erase(tenant)
    domains = parts.domains.owe(tenant, erased.domains)
    parts.leftovers.forget(erased.response_ids)
    drop_warm(parts, [*erased.response_ids, *(card.id for card in parts.host.sessions(tenant))], tenant)
    for domain in domains:
        parts.ledger.forget(domain)
        parts.traces.forget_domain(domain)
    bindings = parts.host.bindings()
    forgot = await asyncio.gather(*(_forget(binding, domains) for binding in bindings))
    # One that has been loaded meanwhile was not asked: its files go too.
    asked = frozenset(binding.name for binding in bindings)
    if not all([*forgot, await _forget_others(parts, domains, asked)]):
        raise Unavailable("Not everything was deleted: some of the cache could not be removed.", retry_after_s=5)
    parts.domains.paid(tenant, domains)
    return erased


async def _forget(binding: Binding, domains: Iterable[bytes]) -> bool:
    """Whether the engine forgot all of them."""
    await binding.registry.flush_disposals()
    try:
        for domain in domains:
            await binding.engine.forget(domain)
    except EngineError as error:
        log.warning("the engine of %s did not forget a tenant: %s", binding.name, error)
        return False
    return True


async def _forget_others(parts: SpineParts, domains: frozenset[bytes], asked: frozenset[str]) -> bool:
    """Whether what models whose engines were not `asked` have on disk was removed."""
    try:
        await parts.erase_files(domains, asked)
    except OSError as error:
        log.warning("the disk cache of models that were not loaded was not erased: %s", error.strerror)
        return False
    return True
