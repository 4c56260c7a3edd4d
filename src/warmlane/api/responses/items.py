"""What a response answered, as the items of GET /v1/responses/{id}/input_items."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from warmlane.api.responses import wire
from warmlane.api.responses.drafts import RESPONSE_PREFIX
from warmlane.conversation.messages import Message, Reasoning, Role, Text, ToolCall, ToolResult
from warmlane.errors import InvalidRequest

DEFAULT_PAGE = 20
MAX_PAGE = 100
PAGE_PARAMETERS = ("limit", "order", "after")


class InputText(msgspec.Struct, frozen=True, tag_field="type", tag="input_text"):
    text: str


ListedRole = Literal["user", "system", "developer", "assistant"]


class InputMessageItem(msgspec.Struct, frozen=True, tag_field="type", tag="message"):
    """Of whichever role: what the assistant said is an output's text."""

    id: str
    role: ListedRole
    content: tuple[InputText | wire.OutputText, ...]
    status: wire.ItemStatus = "completed"


class FunctionCallOutputItem(msgspec.Struct, frozen=True, tag_field="type", tag="function_call_output"):
    id: str
    call_id: str
    output: str
    status: wire.ItemStatus = "completed"


InputItem = InputMessageItem | FunctionCallOutputItem | wire.ReasoningItem | wire.FunctionCallItem


class InputItems(msgspec.Struct, frozen=True, kw_only=True):
    """A page. The vendor's type wants ids even where there is no item; they are then empty."""

    object: Literal["list"] = "list"
    data: tuple[InputItem, ...]
    first_id: str
    last_id: str
    has_more: bool


def input_items(response_id: str, messages: Sequence[Message]) -> tuple[InputItem, ...]:
    """Oldest first. Ids derive from the response's and the position, so that they are the same each time."""
    digits = response_id.removeprefix(RESPONSE_PREFIX)
    parts = [(message, part) for message in messages for part in message.parts]
    return tuple(_item(f"{digits}in{index:04x}", message, part) for index, (message, part) in enumerate(parts))


def _item(key: str, message: Message, part: Text | Reasoning | ToolCall | ToolResult) -> InputItem:
    match part:
        case ToolCall():
            return wire.FunctionCallItem(f"fc_{key}", "completed", part.call_id, part.name, part.arguments)
        case ToolResult():
            return FunctionCallOutputItem(f"fco_{key}", part.call_id, part.text)
        case Reasoning():
            return wire.ReasoningItem(f"rs_{key}", "completed", (wire.SummaryText(part.text),))
        case Text() if message.role is Role.ASSISTANT:
            return InputMessageItem(f"msg_{key}", "assistant", (wire.OutputText(part.text),))
        case Text():
            role: ListedRole = "user"
            if message.role in (Role.SYSTEM, Role.DEVELOPER):
                role = "system" if message.role is Role.SYSTEM else "developer"
            return InputMessageItem(f"msg_{key}", role, (InputText(part.text),))


def page(items: Sequence[InputItem], *, limit: str | None, order: str | None, after: str | None) -> InputItems:
    """One page of the items, by the query's parameters. Raises `InvalidRequest` naming one that cannot be used."""
    if order not in (None, "asc", "desc"):
        raise InvalidRequest("'order': must be asc or desc.", param="order")
    size = _size(limit)
    ordered = list(items if order == "asc" else reversed(items))
    start = 0
    if after is not None:
        ids = [item.id for item in ordered]
        if after not in ids:
            raise InvalidRequest("'after': no such item.", param="after")
        start = ids.index(after) + 1
    shown = tuple(ordered[start : start + size])
    first, last = (shown[0].id, shown[-1].id) if shown else ("", "")
    return InputItems(data=shown, first_id=first, last_id=last, has_more=start + size < len(ordered))


def _size(limit: str | None) -> int:
    if limit is None:
        return DEFAULT_PAGE
    if not (limit.isascii() and limit.isdecimal() and len(limit) < 5 and 1 <= int(limit) <= MAX_PAGE):
        raise InvalidRequest(f"'limit': must be from 1 to {MAX_PAGE}.", param="limit")
    return int(limit)
