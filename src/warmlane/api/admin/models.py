"""GET /v1/models and /v1/models/{id}, in the dialect of whoever asks: `anthropic-version` tells."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal

import msgspec
from fastapi import FastAPI, Request
from msgspec import UNSET, UnsetType
from starlette.datastructures import QueryParams
from starlette.responses import Response

from warmlane.api import jsonio
from warmlane.api.guard import speaks_anthropic
from warmlane.api.settings import Edge
from warmlane.errors import InvalidRequest, ModelNotFound
from warmlane.host.view import ModelCard

DEFAULT_PAGE = 20
MAX_PAGE = 1000


class OpenAIModel(msgspec.Struct, frozen=True, kw_only=True):
    """`created` is in Unix seconds, `context_window` in tokens; left out as long as the model was not loaded."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "warmlane"
    context_window: int | UnsetType = UNSET


class OpenAIModels(msgspec.Struct, frozen=True, kw_only=True):
    object: Literal["list"] = "list"
    data: tuple[OpenAIModel, ...]


class AnthropicModel(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="model"):
    """`created_at` is RFC 3339; the token counts are bounds of one request."""

    id: str
    display_name: str
    created_at: str
    lifecycle: Literal["active"] = "active"
    max_input_tokens: int | None
    max_tokens: int | None


class AnthropicModels(msgspec.Struct, frozen=True, kw_only=True):
    data: tuple[AnthropicModel, ...]
    has_more: bool
    first_id: str | None
    last_id: str | None


def add_routes(app: FastAPI, edge: Edge) -> None:
    @app.api_route("/v1/models", methods=["GET", "HEAD"], response_model=None)
    async def list_models(request: Request) -> Response:
        cards = edge.host.models()
        if speaks_anthropic(request.scope):
            return _json(_page(cards, request.query_params))
        return _json(OpenAIModels(data=tuple(_openai(card) for card in cards)))

    @app.api_route("/v1/models/{model_id:path}", methods=["GET", "HEAD"], response_model=None)
    async def get_model(request: Request, model_id: str) -> Response:
        card = edge.host.card(edge.host.canonical(model_id))
        if card is None:
            raise ModelNotFound(model_id[:256], tuple(card.id for card in edge.host.models()))
        return _json(_anthropic(card) if speaks_anthropic(request.scope) else _openai(card))


def _page(cards: Sequence[ModelCard], query: QueryParams) -> AnthropicModels:
    limit = _limit(query.get("limit"))
    ids = [card.id for card in cards]
    start, end = 0, len(cards)
    if (after := query.get("after_id")) is not None:
        start = _position(ids, after, "after_id") + 1
    if (before := query.get("before_id")) is not None:
        end = _position(ids, before, "before_id")
        start = max(start, end - limit)
    page = cards[start : min(end, start + limit)]
    return AnthropicModels(
        data=tuple(_anthropic(card) for card in page),
        has_more=start > 0 if before is not None else start + len(page) < end,
        first_id=page[0].id if page else None,
        last_id=page[-1].id if page else None,
    )


def _limit(value: str | None) -> int:
    if value is None:
        return DEFAULT_PAGE
    if not (value.isascii() and value.isdecimal() and len(value) < 6 and 1 <= int(value) <= MAX_PAGE):
        raise InvalidRequest(f"'limit': must be from 1 to {MAX_PAGE}.", param="limit")
    return int(value)


def _position(ids: list[str], model_id: str, param: str) -> int:
    if model_id not in ids:
        raise InvalidRequest(f"'{param}': no such model.", param=param)
    return ids.index(model_id)


def _openai(card: ModelCard) -> OpenAIModel:
    return OpenAIModel(
        id=card.id, created=card.created, context_window=UNSET if card.context_window is None else card.context_window
    )


def _anthropic(card: ModelCard) -> AnthropicModel:
    return AnthropicModel(
        id=card.id,
        display_name=card.id,
        created_at=datetime.fromtimestamp(card.created, UTC).isoformat().replace("+00:00", "Z"),
        max_input_tokens=card.context_window,
        max_tokens=card.context_window,
    )


def _json(value: msgspec.Struct) -> Response:
    return Response(jsonio.encode(value), media_type="application/json")
