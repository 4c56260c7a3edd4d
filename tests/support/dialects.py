"""One dialogue asked in any of the three dialects, and what came back in the same words for all."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import anthropic.types.shared as anthropic_errors
import httpx

from support import strict

PATHS = {"responses": "/v1/responses", "messages": "/v1/messages", "chat": "/v1/chat/completions"}

Dialogue = Sequence[tuple[str, str]]
"""Roles and texts."""


@dataclass(frozen=True, slots=True)
class Told:
    """A finished turn as its client is told of it. `reason` is why no session was leased."""

    id: str
    text: str
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    reason: str = ""

    @property
    def held_tokens(self) -> int:
        """What the engine holds at least: all of it but the last token sampled, which was never computed."""
        return self.prompt_tokens + self.output_tokens - 1

    @property
    def reused(self) -> float:
        """The share of the prompt that was not prefilled."""
        return self.cached_tokens / self.prompt_tokens


def body_of(
    name: str,
    dialogue: Dialogue,
    *,
    model: str = "simulated",
    max_tokens: int = 400,
    stream: bool = False,
    **extra: object,
) -> dict[str, object]:
    """The request's JSON; `extra` are fields that the dialect has."""
    messages = [{"role": role, "content": text} for role, text in dialogue]
    if name == "responses":
        fields: dict[str, object] = {"input": messages, "max_output_tokens": max_tokens}
    else:
        fields = {"messages": messages, "max_tokens": max_tokens}
    if name == "chat" and stream:
        fields["stream_options"] = {"include_usage": True}
    if name == "chat" or name == "messages" or stream:
        fields["stream"] = stream
    return {"model": model, **fields, **extra}


def told(name: str, response: httpx.Response) -> Told:
    """A whole answer, strictly typed."""
    assert response.status_code == 200, response.text
    return told_by(name, response.json(), response.headers)


def told_by(name: str, body: Any, headers: Mapping[str, str]) -> Told:
    reason = headers.get("x-cache-miss-reason", "")
    if name == "responses":
        answer = strict.response(body)
        assert answer.usage is not None
        used = answer.usage
        cached = used.input_tokens_details.cached_tokens
        return Told(answer.id, answer.output_text, used.input_tokens, cached, used.output_tokens, reason)
    if name == "messages":
        message = strict.message(body)
        cached = message.usage.cache_read_input_tokens or 0
        prompt = message.usage.input_tokens + cached + (message.usage.cache_creation_input_tokens or 0)
        text = "".join(block.text for block in message.content if block.type == "text")
        return Told(message.id, text, prompt, cached, message.usage.output_tokens, reason)
    completion = strict.completion(body)
    assert completion.usage is not None
    details = completion.usage.prompt_tokens_details
    return Told(
        completion.id,
        completion.choices[0].message.content or "",
        completion.usage.prompt_tokens,
        (details.cached_tokens if details else 0) or 0,
        completion.usage.completion_tokens,
        reason,
    )


def streamed_text(name: str, response: httpx.Response) -> str:
    """The sum of a stream's deltas, its events strictly typed and in order, no U+FFFD anywhere in it."""
    events = strict.sse(response)
    if name == "responses":
        return strict.response_stream(events).output_text
    if name == "messages":
        return strict.message_stream(events)
    return strict.completion_stream(events, usage=True)


def deltas(name: str, lines: Iterable[str]) -> Iterator[str]:
    """The pieces of text in the lines of a stream, as they come."""
    for line in lines:
        if line.startswith("data: {") and (piece := _piece(name, json.loads(line[6:]))):
            yield piece


async def deltas_of(name: str, lines: AsyncIterator[str]) -> AsyncIterator[str]:
    """`deltas` of a stream read asynchronously."""
    async for line in lines:
        for piece in deltas(name, (line,)):
            yield piece


def _piece(name: str, event: Any) -> str:
    if name == "responses":
        return str(event["delta"]) if event["type"] == "response.output_text.delta" else ""
    if name == "messages":
        return str(event["delta"].get("text", "")) if event["type"] == "content_block_delta" else ""
    return "".join(choice["delta"].get("content") or "" for choice in event.get("choices", ()))


def check_envelope(name: str, status: int, headers: Mapping[str, str], content: bytes) -> str:
    """The message of a refusal: a 4xx in the dialect's own envelope."""
    assert 400 <= status < 500, (status, content[:300])
    body = json.loads(content)
    if name == "messages":
        if status == 413:  # documented by the vendor, and not among its SDK's types
            assert body["error"]["type"] == "request_too_large"
        else:
            anthropic_errors.ErrorResponse.model_validate(body)
        assert body["type"] == "error"
        assert body["request_id"] == headers["request-id"]
    else:
        assert body["error"].keys() == {"message", "type", "param", "code"}
    return str(body["error"]["message"])
