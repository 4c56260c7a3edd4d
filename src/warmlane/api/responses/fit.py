"""Making an input fit: the oldest items go, whole exchanges of calls and results at a time.

What a previous response brings along stays; so do system and developer messages.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from warmlane.api.jsonio import JsonObject, encode

MAX_ROUNDS = 8
"""How often the prompt is counted. Each round drops about as much as is too much, so two usually do."""

_KEPT_ROLES = ("system", "developer")
_RESULTS = ("function_call_output", "custom_tool_call_output")


async def fitting(
    items: Sequence[JsonObject],
    *,
    room: int,
    count: Callable[[Sequence[JsonObject]], Awaitable[int]],
) -> list[JsonObject]:
    """The newest of the items whose prompt has at most `room` tokens by `count`; at least the last one, and the call it
    is the result of."""
    kept = list(items)
    for _ in range(MAX_ROUNDS):
        n_tokens = await count(kept)
        needed = _call_id(kept[-1]) if kept and kept[-1].get("type") in _RESULTS else None
        droppable = [
            n
            for n, item in enumerate(kept[:-1])
            if item.get("role") not in _KEPT_ROLES and (needed is None or _call_id(item) != needed)
        ]
        if n_tokens <= room or not droppable:
            break
        kept = _without_oldest(kept, droppable, share=(n_tokens - room) / n_tokens)
    return kept


def _without_oldest(items: list[JsonObject], droppable: list[int], *, share: float) -> list[JsonObject]:
    """Without the oldest items that make up this share of the whole, and one more at the least."""
    sizes = [len(encode(item)) for item in items]
    excess = share * sum(sizes)
    dropped: set[int] = set()
    for index in droppable:
        dropped.add(index)
        excess -= sizes[index]
        if excess <= 0:
            break
    calls = {_call_id(items[index]) for index in dropped} - {None}
    kept = [item for index, item in enumerate(items) if index not in dropped]
    return [item for item in kept if item.get("type") not in _RESULTS or _call_id(item) not in calls]


def _call_id(item: JsonObject) -> str | None:
    call_id = item.get("call_id")
    return call_id if isinstance(call_id, str) else None
