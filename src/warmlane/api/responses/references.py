"""`item_reference`: items that clients name instead of sending, as what they stand for.

Item ids are made of the response's own digits and a position, so an id says where the item is stored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from warmlane.api import jsonio
from warmlane.api.errors import HttpRefusal
from warmlane.api.fields import refuse
from warmlane.api.jsonio import JsonObject
from warmlane.api.responses.drafts import RESPONSE_PREFIX, output_items
from warmlane.api.responses.items import InputItem, input_items
from warmlane.api.responses.sealed import Seals
from warmlane.api.responses.wire import OutputItem
from warmlane.errors import ResponseNotFound
from warmlane.turns.archive import ResponseArchive

MAX_NAMED = 1024
"""How many items, each however often, an input can name: each may be in a row of its own."""

_ITEM_ID = re.compile(r"[a-z]{2,4}_([0-9a-f]{16,64}?)(in)?[0-9a-f]{4}")


Item = TypeVar("Item")


def has_references(items: Sequence[object]) -> bool:
    return any(_reference(item) is not None for item in items)


async def resolved(
    items: Sequence[Item],
    archive: ResponseArchive,
    tenant: str,
    seals: Seals,
    *,
    max_bytes: int,
    given_in: str = "input",
) -> list[Item | JsonObject]:
    """The items, each reference replaced by what it names, reasoning with its tokens sealed. `given_in` is the field
    that holds them.

    Raises `InvalidRequest` for one that names nothing stored and for too many, `HttpRefusal` where what is named has
    more than `max_bytes` of JSON, counted as often as it is named, and `Unavailable`.
    """
    names = [_reference(item) for item in items]
    places: dict[str, list[int]] = {}
    for index, name in enumerate(names):
        if name is not None:
            places.setdefault(name, []).append(index)
    if len(places) > MAX_NAMED:
        raise refuse(given_in, f"names {len(places)} stored items; at most {MAX_NAMED} are supported.")
    known: dict[str, JsonObject] = {}
    n_bytes = 0
    for origin, wanted in _by_origin(places).items():
        stored = await _items_of(archive, origin, tenant, seals)
        for name in wanted:
            item = stored.get(name)
            if item is None:
                raise refuse(f"{given_in}[{places[name][0]}].id", "no item of this id is stored; send the item itself.")
            data = jsonio.encode(item)
            n_bytes += len(data) * len(places[name])
            if n_bytes > max_bytes:
                message = f"'{given_in}': the stored items it names are over the limit of {max_bytes} bytes."
                raise HttpRefusal(413, message, code="request_too_large")
            known[name] = jsonio.decode_object(data)
    return [item if name is None else known[name] for item, name in zip(items, names, strict=True)]


@dataclass(frozen=True, slots=True)
class _Origin:
    """Where items are stored: in the output of a response, or among what was said before it."""

    response_id: str
    inputs: bool


def _by_origin(names: Iterable[str]) -> dict[_Origin, list[str]]:
    """The names by where they are, so that one row at a time is in memory."""
    wanted: dict[_Origin, list[str]] = {}
    for name in names:
        match = _ITEM_ID.fullmatch(name)
        origin = _Origin(RESPONSE_PREFIX + match[1], match[2] is not None) if match else _Origin("", inputs=False)
        wanted.setdefault(origin, []).append(name)
    return wanted


def _reference(item: object) -> str | None:
    """The id that the item names; None for an item that is there itself."""
    if not isinstance(item, dict) or not isinstance(item.get("id"), str):
        return None
    bare = item.get("type") is None and not ("role" in item or "content" in item)
    return str(item["id"]) if bare or item.get("type") == "item_reference" else None


async def _items_of(
    archive: ResponseArchive, origin: _Origin, tenant: str, seals: Seals
) -> Mapping[str, OutputItem | InputItem]:
    response_id = origin.response_id
    try:
        if origin.inputs:
            said = await archive.conversation(response_id, tenant)
            return {item.id: item for item in input_items(response_id, said)}
        outcome = (await archive.retrieve(response_id, tenant)).outcome
        if outcome is None:
            return {}
        return {item.id: item for item in output_items(response_id, outcome.message, seal=seals.seal)}
    except ResponseNotFound:
        return {}
