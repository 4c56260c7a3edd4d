"""`item_reference`: items that clients name instead of sending, as what they stand for.

Item ids are made of the response's own digits and a position, so an id says where the item is stored.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from warmlane.api import jsonio
from warmlane.api.fields import refuse
from warmlane.api.responses.drafts import RESPONSE_PREFIX, output_items
from warmlane.api.responses.items import InputItem, input_items
from warmlane.api.responses.sealed import Seals
from warmlane.api.responses.wire import OutputItem
from warmlane.errors import ResponseNotFound
from warmlane.turns.archive import ResponseArchive

_ITEM_ID = re.compile(r"[a-z]{2,4}_([0-9a-f]{16,64}?)(in)?[0-9a-f]{4}")


def has_references(items: Sequence[object]) -> bool:
    return any(_reference(item) is not None for item in items)


async def resolved(items: Sequence[object], archive: ResponseArchive, tenant: str, seals: Seals) -> list[object]:
    """The items, each reference replaced by what it names, reasoning with its tokens sealed.

    Raises `InvalidRequest` for one that names nothing stored, and `Unavailable`.
    """
    known: dict[str, dict[str, OutputItem | InputItem]] = {}
    found: list[object] = []
    for index, item in enumerate(items):
        name = _reference(item)
        if name is None:
            found.append(item)
            continue
        match = _ITEM_ID.fullmatch(name)
        where = RESPONSE_PREFIX + match[1] if match else ""
        key = f"{where} in" if match and match[2] else where
        if key not in known:
            known[key] = await _items_of(archive, where, tenant, seals, inputs=key != where)
        named = known[key].get(name)
        if named is None:
            raise refuse(f"input[{index}].id", "no item of this id is stored; send the item itself.")
        found.append(jsonio.decode_object(jsonio.encode(named)))
    return found


def _reference(item: object) -> str | None:
    """The id that the item names; None for an item that is there itself."""
    if not isinstance(item, dict) or not isinstance(item.get("id"), str):
        return None
    bare = item.get("type") is None and not ("role" in item or "content" in item)
    return str(item["id"]) if bare or item.get("type") == "item_reference" else None


async def _items_of(
    archive: ResponseArchive, response_id: str, tenant: str, seals: Seals, *, inputs: bool
) -> dict[str, OutputItem | InputItem]:
    try:
        if inputs:
            said = await archive.conversation(response_id, tenant)
            return {item.id: item for item in input_items(response_id, said)}
        outcome = (await archive.retrieve(response_id, tenant)).outcome
        if outcome is None:
            return {}
        return {item.id: item for item in output_items(response_id, outcome.message, seal=seals.seal)}
    except ResponseNotFound:
        return {}
