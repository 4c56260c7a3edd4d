"""The routes of conversation objects and of their items."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from warmlane.api import jsonio
from warmlane.api.body import read_json
from warmlane.api.conversations.render import (
    DeletedConversation,
    all_items,
    conversation_object,
    entry_items,
    located,
)
from warmlane.api.conversations.request import AddRequest, CreateRequest, UpdateRequest, read_items
from warmlane.api.fields import parse, refuse
from warmlane.api.guard import caller_of
from warmlane.api.headers import ignored_in, warning_headers
from warmlane.api.jsonio import JsonObject
from warmlane.api.responses.items import PAGE_PARAMETERS, InputItem, InputItems, page
from warmlane.api.responses.references import has_references, resolved
from warmlane.api.responses.sealed import Seals
from warmlane.api.settings import Edge
from warmlane.conversation.kept import Conversation, Entry
from warmlane.conversation.messages import Message
from warmlane.errors import ConversationNotFound

CONVERSATION_PREFIX = "conv_"


def routes(edge: Edge) -> list[BaseRoute]:
    kept = _Conversations(edge)
    one = "/v1/conversations/{conversation_id}"
    return [
        Route("/v1/conversations", kept.create, methods=["POST"]),
        Route(one, kept.retrieve, methods=["GET"]),
        Route(one, kept.update, methods=["POST"]),
        Route(one, kept.delete, methods=["DELETE"]),
        Route(f"{one}/items", kept.list_items, methods=["GET"]),
        Route(f"{one}/items", kept.add_items, methods=["POST"]),
        Route(f"{one}/items/{{item_id}}", kept.retrieve_item, methods=["GET"]),
        Route(f"{one}/items/{{item_id}}", kept.delete_item, methods=["DELETE"]),
    ]


class _Conversations:
    def __init__(self, edge: Edge) -> None:
        self._edge = edge
        self._kept = edge.conversations

    async def create(self, request: Request) -> Response:
        asked = parse(CreateRequest, await self._body(request))
        entries, ignored = await self._entries(request, asked.items)
        name = CONVERSATION_PREFIX + self._edge.new_token()
        made = await self._kept.create(name, _tenant(request), jsonio.encode(asked.metadata or {}), entries)
        return _conversation(made, (*asked.unknown, *ignored))

    async def retrieve(self, request: Request) -> Response:
        return _conversation(await self._kept.retrieve(*_whose(request)))

    async def update(self, request: Request) -> Response:
        asked = parse(UpdateRequest, await self._body(request))
        changed = await self._kept.set_metadata(*_whose(request), jsonio.encode(asked.metadata or {}))
        return _conversation(changed, asked.unknown)

    async def delete(self, request: Request) -> Response:
        await self._kept.delete(*_whose(request))
        return _json(DeletedConversation(id=_id(request)))

    async def list_items(self, request: Request) -> Response:
        query = request.query_params
        items = all_items(await self._kept.read(*_whose(request)))
        listed = page(items, limit=query.get("limit"), order=query.get("order"), after=query.get("after"))
        return _json(listed, ignored_in(query, known=PAGE_PARAMETERS))

    async def add_items(self, request: Request) -> Response:
        asked = parse(AddRequest, await self._body(request))
        entries, ignored = await self._entries(request, asked.items)
        if not entries:
            raise refuse("items", "holds no item that says anything to a model here.")
        await self._kept.add(*_whose(request), entries)
        added = tuple(item for entry in entries for item in entry_items(entry))
        listed = InputItems(data=added, first_id=added[0].id, last_id=added[-1].id, has_more=False)
        return _json(listed, (*asked.unknown, *ignored, *ignored_in(request.query_params, known=())))

    async def retrieve_item(self, request: Request) -> Response:
        _, _, item = await self._find(request)
        return _json(item, ignored_in(request.query_params, known=()))

    async def delete_item(self, request: Request) -> Response:
        """An item is a part of a message; the message goes with its last one."""
        entry, index, _ = await self._find(request)
        left = tuple(part for i, part in enumerate(entry.message.parts) if i != index)
        # Without what was deleted the message is not what was sampled.
        kept = Entry(entry.id, Message(entry.message.role, left)) if left else None
        await self._kept.change(*_whose(request), entry.id, kept)
        return _conversation(await self._kept.retrieve(*_whose(request)))

    async def _find(self, request: Request) -> tuple[Entry, int, InputItem]:
        wanted = str(request.path_params["item_id"])[:256]
        for found in located(await self._kept.read(*_whose(request))):
            if found[2].id == wanted:
                return found
        raise ConversationNotFound(_id(request), wanted)

    async def _entries(
        self, request: Request, items: list[dict[str, object]] | None
    ) -> tuple[tuple[Entry, ...], tuple[str, ...]]:
        """New entries, copies of those that are named, and the paths of what has no effect."""
        turns, tenant, given = self._edge.turns, _tenant(request), items or []
        seals = Seals(turns, turns.domain(tenant, None))
        if has_references(given):
            limit = self._edge.settings.max_body_bytes
            given = await resolved(given, self._edge.archive, tenant, seals, max_bytes=limit, given_in="items")
        read = read_items(given, seals)
        return tuple(Entry(self._edge.new_token(), message) for message in read.messages), read.ignored

    async def _body(self, request: Request) -> JsonObject:
        return await read_json(request.scope, request.receive, max_bytes=self._edge.settings.max_body_bytes)


def _id(request: Request) -> str:
    return str(request.path_params["conversation_id"])[:256]


def _tenant(request: Request) -> str:
    return caller_of(request.scope).tenant


def _whose(request: Request) -> tuple[str, str]:
    return _id(request), _tenant(request)


def _conversation(conversation: Conversation, ignored: Sequence[str] = ()) -> Response:
    return _json(conversation_object(conversation), ignored)


def _json(value: msgspec.Struct, ignored: Sequence[str] = ()) -> Response:
    response = Response(jsonio.encode(value), media_type="application/json")
    response.raw_headers.extend(warning_headers(ignored))
    return response
