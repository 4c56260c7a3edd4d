"""The response headers in which Warmlane says what it did with a request."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from urllib.parse import quote

import msgspec
from msgspec import UNSET, UnsetType
from starlette.datastructures import QueryParams

from warmlane.conversation.turn import CacheFacts, Divergence, Outcome

WARNINGS_MAX_BYTES = 1024
_COUNT_RESERVE_BYTES = 16

# What a header may not begin or end with.
_OUTER_SPACES = re.compile(r"^ +| +$")
_NOTHING = "%22%22"

Headers = list[tuple[bytes, bytes]]


class WarmlaneFacts(msgspec.Struct, frozen=True):
    """The same facts in the answer: the `warmlane` object of Messages and Chat, in the last event of a stream.
    `divergence` is there if less was cached than could be, with a short excerpt of both sides where the prompt left
    another; `warnings` are those that came too late for the header."""

    session_cache: str
    cached_tokens: int
    cache_miss_reason: str
    divergence: Divergence | UnsetType = UNSET
    warnings: tuple[str, ...] | UnsetType = UNSET


def cache_facts(cache: CacheFacts, *, warnings: tuple[str, ...] = ()) -> WarmlaneFacts:
    return WarmlaneFacts(
        session_cache=cache.outcome.value,
        cached_tokens=cache.cached_tokens,
        cache_miss_reason=cache.reason,
        divergence=UNSET if cache.divergence is None else cache.divergence,
        warnings=warnings or UNSET,
    )


def answer_headers(outcome: Outcome) -> Headers:
    """Cache facts of an answer in one piece."""
    facts = cache_facts(outcome.cache)
    return [
        (b"x-session-cache", facts.session_cache.encode()),
        (b"x-cached-tokens", str(facts.cached_tokens).encode()),
        (b"x-cache-miss-reason", quote(facts.cache_miss_reason).encode()),
    ]


def warning_headers(warnings: Sequence[str]) -> Headers:
    """The fields that were accepted and not acted on."""
    return _listed(b"x-warmlane-warnings", warnings)


def ignored_in(query: QueryParams, *, known: Collection[str]) -> list[str]:
    """The parameters of a query that are accepted and not acted on: all but the `known`."""
    return [name for name in query if name not in known]


def canonical_headers(changes: Sequence[str]) -> Headers:
    """What was put in canonical form, so that the prompt shares a prefix with others that say the same."""
    return _listed(b"x-warmlane-canonicalized", changes)


def _listed(header: bytes, items: Sequence[str]) -> Headers:
    """Percent-encoded, comma-separated, at most 1 KiB; what does not fit is counted (`+3`)."""
    names = list(dict.fromkeys(items))
    if not names:
        return []
    kept: list[str] = []
    size = 0
    for name in names:
        encoded = _encoded(name)
        size += len(encoded) + 2
        if size > WARNINGS_MAX_BYTES - _COUNT_RESERVE_BYTES:
            break
        kept.append(encoded)
    if len(kept) < len(names):
        kept.append(f"+{len(names) - len(kept)}")
    return [(header, ", ".join(kept).encode())]


def _encoded(name: str) -> str:
    """Legible as far as a header's value can be; nothing at all is told as two quotes."""
    encoded = quote(name, safe="[]._-:;= ()'/")
    return _OUTER_SPACES.sub(lambda found: "%20" * len(found[0]), encoded) or _NOTHING
