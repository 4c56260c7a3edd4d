"""From a body as it was sent to one that stands on its own: references resolved, and where asked, made to fit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import cast

from warmlane.api.exchange import Prepare
from warmlane.api.guard import Caller
from warmlane.api.jsonio import JsonObject
from warmlane.api.responses.fit import fitting
from warmlane.api.responses.references import has_references, resolved
from warmlane.api.responses.request import as_items
from warmlane.api.responses.sealed import Seals
from warmlane.api.settings import Edge
from warmlane.conversation.turn import TurnRequest

ROOM_FOR_OUTPUT = 0.125
"""The share of the window that is kept free for the reply where an input is cut."""

Asks = Callable[[JsonObject], bool]

Count = Callable[[TurnRequest], Awaitable[int]]
"""How many tokens the prompt of a turn has."""


class Completion:
    """Implements `exchange.Complete`. `prepare` makes the turn whose prompt has to fit, `cuts` says whether a body may
    be cut. `count` is the spine's own where none is given."""

    def __init__(self, edge: Edge, prepare: Prepare, *, cuts: Asks, count: Count | None = None) -> None:
        self._edge = edge
        self._prepare = prepare
        self._cuts = cuts
        self._count = count or edge.turns.count_tokens

    async def __call__(self, body: JsonObject, caller: Caller) -> tuple[JsonObject, tuple[str, ...]]:
        """Raises `InvalidRequest`, `HttpRefusal` and `Unavailable`."""
        items = as_items(body.get("input"))
        if not isinstance(items, list):
            return body, ()
        if has_references(items):
            salt = body.get("cache_salt")
            domain = self._edge.turns.domain(caller.tenant, salt if isinstance(salt, str) else None)
            seals = Seals(self._edge.turns, domain)
            limit = self._edge.settings.max_body_bytes
            items = await resolved(items, self._edge.archive, caller.tenant, seals, max_bytes=limit)
            body = {**body, "input": items}
        if self._cuts(body) and all(isinstance(item, dict) for item in items):
            return await self._cut(body, cast(list[JsonObject], items), caller)
        return body, ()

    async def _cut(
        self, body: JsonObject, items: list[JsonObject], caller: Caller
    ) -> tuple[JsonObject, tuple[str, ...]]:
        async def count(tried: Sequence[JsonObject]) -> int:
            prepared = self._prepare({**body, "input": list(tried)}, caller)
            return await self._count(prepared.request)

        card = self._edge.host.card(str(body.get("model")))
        if card is None or card.context_window is None:
            return body, ()
        kept = await fitting(items, room=int(card.context_window * (1 - ROOM_FOR_OUTPUT)), count=count)
        n_dropped = len(items) - len(kept)
        if not n_dropped:
            return body, ()
        return {**body, "input": kept}, (f"input (its {n_dropped} oldest items)",)


def may_cut(body: JsonObject) -> bool:
    """Whether a request for a response lets its oldest items go."""
    return body.get("truncation") == "auto"
