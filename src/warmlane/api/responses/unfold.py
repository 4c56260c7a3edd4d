"""A compaction by id: the dialogue as items of its own, so that the user's messages, and calls that wait for their
results, outlast the summary, and the oldest items can go where all of them are too many."""

from __future__ import annotations

from warmlane.api import jsonio
from warmlane.api.exchange import Complete
from warmlane.api.guard import Caller
from warmlane.api.jsonio import JsonObject
from warmlane.api.responses.drafts import output_items
from warmlane.api.responses.items import InputItem, input_items
from warmlane.api.responses.request import as_items
from warmlane.api.responses.sealed import Seals
from warmlane.api.responses.wire import OutputItem
from warmlane.api.settings import Edge
from warmlane.errors import ResponseNotFound


class Unfolded:
    """Implements `exchange.Complete`; `complete` gets the body with the items in front of its input. A response that is
    not stored stays named: it may be warm, and else the turn refuses it."""

    def __init__(self, edge: Edge, complete: Complete) -> None:
        self._edge = edge
        self._complete = complete

    async def __call__(self, body: JsonObject, caller: Caller) -> tuple[JsonObject, tuple[str, ...]]:
        """Raises `Unavailable`, and what `complete` raises."""
        previous, own = body.get("previous_response_id"), as_items(body.get("input") or [])
        if isinstance(previous, str) and isinstance(own, list) and body.get("conversation") is None:
            said = await self._items(previous, body.get("cache_salt"), caller.tenant)
            if said:
                body = {**body, "input": [*said, *own], "previous_response_id": None}
        return await self._complete(body, caller)

    async def _items(self, previous: str, salt: object, tenant: str) -> list[JsonObject]:
        domain = self._edge.turns.domain(tenant, salt if isinstance(salt, str) else None)
        seals = Seals(self._edge.turns, domain)
        try:
            outcome = (await self._edge.archive.retrieve(previous, tenant)).outcome
            before = await self._edge.archive.conversation(previous, tenant)
        except ResponseNotFound:
            return []
        if outcome is None:
            return []
        items: list[InputItem | OutputItem] = [
            *input_items(previous, before),
            *output_items(previous, outcome.message, seal=seals.seal),
        ]
        return [jsonio.decode_object(jsonio.encode(item)) for item in items]
