"""Cache breakpoints. Every prompt is kept whole, so they decide how its tokens are reported, not what is kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

from warmlane.api.messages.blocks import CacheControl, WireBlock
from warmlane.api.messages.request import MessagesRequest
from warmlane.errors import InvalidRequest

MAX_BREAKPOINTS = 4

Lifetime = Literal["5m", "1h"]


def cache_lifetime(request: MessagesRequest) -> Lifetime | None:
    """The lifetime asked for at the prompt's last breakpoint; None without any. Raises `InvalidRequest` for more than
    four, in the vendor's words."""
    found = [control for control in _controls(request) if control is not None]
    if len(found) > MAX_BREAKPOINTS:
        raise InvalidRequest(
            f"A maximum of {MAX_BREAKPOINTS} blocks with cache_control may be provided. Found {len(found)}."
        )
    return (found[-1].ttl or "5m") if found else None


def _controls(request: MessagesRequest) -> Iterator[CacheControl | None]:
    """In the order of the prompt; the one of the whole request is at its end."""
    yield from (tool.cache_control for tool in request.tools or ())
    yield from _of_blocks(request.system or ())
    for message in request.messages:
        yield from _of_blocks(message.content)
    yield request.cache_control


def _of_blocks(blocks: Iterable[WireBlock]) -> Iterator[CacheControl | None]:
    for block in blocks:
        yield from _of_blocks(block.content or ())
        yield block.cache_control
