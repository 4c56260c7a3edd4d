"""Cache breakpoints. Every prompt is kept whole; they decide how its tokens are reported, and how far it is pinned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from warmlane.api.messages.blocks import CacheControl, WireBlock
from warmlane.api.messages.request import MessagesRequest
from warmlane.conversation.turn import Pin
from warmlane.errors import InvalidRequest

MAX_BREAKPOINTS = 4

Lifetime = Literal["5m", "1h"]

_SECONDS: dict[Lifetime, float] = {"5m": 300.0, "1h": 3600.0}


def cache_lifetime(request: MessagesRequest) -> Lifetime | None:
    """The lifetime asked for at the prompt's last breakpoint; None without any. Raises `InvalidRequest` for more than
    four, in the vendor's words."""
    found = [control for _, control in _breakpoints(request)]
    if len(found) > MAX_BREAKPOINTS:
        raise InvalidRequest(
            f"A maximum of {MAX_BREAKPOINTS} blocks with cache_control may be provided. Found {len(found)}."
        )
    return (found[-1].ttl or "5m") if found else None


def pins(request: MessagesRequest, ends: Sequence[int]) -> tuple[Pin, ...]:
    """What the breakpoints keep warm: each the whole prompt up to the end of its message, so that one counts only where
    no later one lives as long. `ends` is `DialogueReader.ends`."""
    kept: list[Pin] = []
    for step, control in reversed(tuple(_breakpoints(request))):
        ttl_s = _SECONDS[control.ttl or "5m"]
        if ends[step] and all(pin.ttl_s < ttl_s for pin in kept):
            kept.append(Pin(ends[step], ttl_s))
    return tuple(reversed(kept))


def _breakpoints(request: MessagesRequest) -> Iterator[tuple[int, CacheControl]]:
    """In the order of the prompt, each with the number of messages it stands behind or in; tools are shown with the
    system prompt, and the one of the whole request is at its end."""
    for step, control in _controls(request):
        if control is not None:
            yield step, control


def _controls(request: MessagesRequest) -> Iterator[tuple[int, CacheControl | None]]:
    for tool in request.tools or ():
        yield 0, tool.cache_control
    for control in _of_blocks(request.system or ()):
        yield 0, control
    for step, message in enumerate(request.messages, 1):
        for control in _of_blocks(message.content):
            yield step, control
    yield len(request.messages), request.cache_control


def _of_blocks(blocks: Iterable[WireBlock]) -> Iterator[CacheControl | None]:
    for block in blocks:
        yield from _of_blocks(block.content or ())
        yield block.cache_control
