"""Strict validation of wire bodies with the vendors' own types: their clients build objects without validating."""

from __future__ import annotations

import json
import typing
from collections.abc import Iterable

import httpx
from anthropic.types import Message, RawMessageStreamEvent
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from openresponses_types import types as open_responses
from pydantic import BaseModel


def _by_type(union: object) -> dict[str, type[BaseModel]]:
    """Each event's literal `type` to its model."""
    arguments = typing.get_args(union)
    members = typing.get_args(arguments[0]) or arguments
    return {literal: model for model in members for literal in typing.get_args(model.model_fields["type"].annotation)}


RESPONSE_EVENTS = _by_type(ResponseStreamEvent)
MESSAGE_EVENTS = _by_type(RawMessageStreamEvent)
TERMINALS = ("response.completed", "response.incomplete", "response.failed")


def sse(response: httpx.Response) -> list[dict[str, typing.Any]]:
    """The events of a stream, its framing checked: LF lines, `event:` equal to the data's `type` where there is one."""
    assert response.status_code == 200, response.read()
    assert response.headers["content-type"].startswith("text/event-stream")
    raw = response.read().decode()
    assert "\r" not in raw
    assert "\ufffd" not in raw
    events = []
    for block in filter(None, raw.split("\n\n")):
        lines = block.split("\n")
        data = next(line[6:] for line in lines if line.startswith("data: "))
        if data == "[DONE]":
            continue
        event = json.loads(data)
        names = [line[7:] for line in lines if line.startswith("event: ")]
        assert names in ([], [event.get("type")])
        events.append(event)
    return events


def response(body: object) -> Response:
    open_responses.ResponseResource.model_validate(body)
    return Response.model_validate(body)


def response_stream(events: list[dict[str, typing.Any]]) -> Response:
    """Check types and order of a Responses stream, and give its final response."""
    for event in events:
        RESPONSE_EVENTS[event["type"]].model_validate(event)
        assert event["type"] == "error" or "error" not in event
    assert [e["sequence_number"] for e in events] == list(range(len(events)))
    kinds = [e["type"] for e in events]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert [k for k in kinds if k in TERMINALS] == [kinds[-1]]
    assert len({e["response"]["id"] for e in events if "response" in e}) == 1
    items = [e["item"] for e in events if e["type"] == "response.output_item.done"]
    assert items == events[-1]["response"]["output"]
    text = "".join(e["delta"] for e in events if e["type"] == "response.output_text.delta")
    final = Response.model_validate(events[-1]["response"])
    assert text == final.output_text
    return final


def message(body: object) -> Message:
    return Message.model_validate(body)


def message_stream(events: list[dict[str, typing.Any]]) -> str:
    """Check types and order of a Messages stream, and give its text."""
    seen = [e for e in events if e["type"] != "ping"]
    for event in seen:
        MESSAGE_EVENTS[event["type"]].model_validate(event)
    kinds = [e["type"] for e in seen]
    assert kinds[0] == "message_start"
    assert kinds[-2:] == ["message_delta", "message_stop"]
    assert kinds.count("message_start") == kinds.count("message_stop") == kinds.count("message_delta") == 1
    open_blocks: list[int] = []
    for event in seen:
        if event["type"] == "content_block_start":
            assert open_blocks == []
            open_blocks.append(event["index"])
        elif event["type"] == "content_block_delta":
            assert open_blocks == [event["index"]]
        elif event["type"] == "content_block_stop":
            assert open_blocks.pop() == event["index"]
    assert open_blocks == []
    return "".join(e["delta"].get("text", "") for e in seen if e["type"] == "content_block_delta")


def completion(body: object) -> ChatCompletion:
    return ChatCompletion.model_validate(body)


def completion_stream(chunks: Iterable[dict[str, typing.Any]], *, usage: bool) -> str:
    """Check types and order of a Chat stream, and give its text."""
    models = [ChatCompletionChunk.model_validate(chunk) for chunk in chunks]
    assert models[0].choices[0].delta.role == "assistant"
    with_usage = [m for m in models if m.usage is not None]
    assert len(with_usage) == usage
    if usage:
        assert models[-1] is with_usage[0]
        assert models[-1].choices == []
        assert models[-1].usage is not None
        assert models[-1].usage.prompt_tokens_details is not None
        assert models[-1].usage.prompt_tokens_details.cached_tokens is not None
    finishes = [c.finish_reason for m in models for c in m.choices if c.finish_reason]
    assert len(finishes) == 1
    return "".join(c.delta.content or "" for m in models for c in m.choices)
