"""Bodies of the conversation routes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from warmlane.api.fields import Lenient, refuse
from warmlane.api.jsonio import JsonObject
from warmlane.api.responses.input import InputRead, read_input
from warmlane.api.responses.request import MetadataKey, MetadataValue
from warmlane.api.responses.sealed import Seals

MAX_ITEMS = 20
"""At once, as the vendor has it."""

Metadata = Annotated[dict[MetadataKey, MetadataValue], Field(max_length=16)]
Items = Annotated[list[dict[str, object]], Field(max_length=MAX_ITEMS)]


class CreateRequest(Lenient):
    items: Items | None = None
    metadata: Metadata | None = None


class UpdateRequest(Lenient):
    metadata: Metadata | None


class AddRequest(Lenient):
    items: Annotated[Items, Field(min_length=1)]


def read_items(items: Sequence[JsonObject], seals: Seals) -> InputRead:
    """What the items say. Raises `InvalidRequest` naming the field, here `items[…]`."""
    read = read_input(items, seals, given_in="items")
    if read.compacts:
        raise refuse("items", "must not ask for a compaction; send it with a turn.")
    if any(not message.parts for message in read.messages):
        raise refuse("items", "must not hold a message that says nothing.")
    return read
