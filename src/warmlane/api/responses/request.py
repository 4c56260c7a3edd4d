"""POST /v1/responses: the wire request as a `TurnRequest`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from warmlane.api.fields import (
    Block,
    CacheSalt,
    Content,
    Lenient,
    MaxTokens,
    Penalty,
    Temperature,
    TopP,
    refuse,
    refuse_foreign,
    refuse_given,
)
from warmlane.conversation.messages import Message, Part, Reasoning, Role, Text
from warmlane.conversation.turn import Sampling

MIN_RETENTION_S = 60
MAX_RETENTION_S = 7_776_000
RETENTION_KEY = "retention_seconds"

_ROLES = {role.value: role for role in (Role.SYSTEM, Role.DEVELOPER, Role.USER, Role.ASSISTANT)}
_TEXT_TYPES = frozenset({"input_text", "output_text", "text"})
_LOGPROBS = "message.output_text.logprobs"

MetadataKey = Annotated[str, Field(max_length=64)]
MetadataValue = Annotated[str, Field(max_length=512)]


class InputItem(Lenient):
    """An item of `input`. One without `type` is a message; ids, status and phase are not looked at."""

    type: str = "message"
    role: str | None = None
    content: Content | None = None
    summary: list[Block] | None = None


def _as_items(value: object) -> object:
    return [{"role": "user", "content": value}] if isinstance(value, str) and value else value


class TextOptions(Lenient):
    format: Block | None = None
    verbosity: object = None


class StreamOptions(Lenient):
    include_obfuscation: bool | None = None


class CacheOptions(Lenient):
    comparison_response_id: Annotated[str, Field(max_length=256)] | None = None


class ResponsesRequest(Lenient):
    """The body. A field typed `object` is not supported, or not acted on; its value is never read."""

    model: str
    input: Annotated[list[InputItem], BeforeValidator(_as_items), Field(min_length=1)]
    instructions: str | None = None
    previous_response_id: str | None = None
    store: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_output_tokens: MaxTokens | None = None
    max_tool_calls: MaxTokens | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    metadata: Annotated[dict[MetadataKey, MetadataValue], Field(max_length=16)] | None = None
    parallel_tool_calls: bool | None = None
    text: TextOptions | None = None
    include: list[str] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_options: CacheOptions | None = None
    cache_salt: CacheSalt | None = None
    service_tier: str | None = None
    reasoning: dict[str, object] | None = None
    background: bool | None = None
    tools: list[object] | None = None
    tool_choice: object = None
    conversation: object = None
    prompt: object = None


def check_supported(request: ResponsesRequest) -> None:
    """Refuse what would change the answer and is not done here. Raises `InvalidRequest`."""
    refuse_foreign(request)
    refuse_given(
        [
            ("tools", request.tools),
            ("background", request.background),
            ("conversation", request.conversation),
            ("prompt", request.prompt),
            ("top_logprobs", request.top_logprobs),
        ]
    )
    if request.tool_choice not in (None, "auto", "none"):
        raise refuse("tool_choice", "must be 'auto' or 'none', as no tools are given.")
    if request.text and request.text.format and request.text.format.type != "text":
        raise refuse("text.format", "must be of type 'text'; structured output is not supported by this server.")
    for index, name in enumerate(request.include or ()):
        if name == _LOGPROBS:
            raise refuse(f"include[{index}]", "log probabilities are not supported by this server.")


def warnings_of(request: ResponsesRequest) -> tuple[str, ...]:
    """The fields that are accepted and have no effect."""
    ignored = list(request.unknown)
    if request.reasoning and any(value is not None for value in request.reasoning.values()):
        ignored.append("reasoning")
    if request.text and request.text.verbosity is not None:
        ignored.append("text.verbosity")
    if request.truncation == "auto":
        ignored.append("truncation")
    if request.service_tier not in (None, "auto", "default"):
        ignored.append("service_tier")
    if request.stream_options and request.stream_options.include_obfuscation:
        ignored.append("stream_options.include_obfuscation")
    ignored += [f"include[{index}]" for index in range(len(request.include or ()))]
    return tuple(ignored)


def sampling_of(request: ResponsesRequest) -> Sampling:
    return Sampling(
        temperature=request.temperature,
        top_p=request.top_p,
        presence_penalty=request.presence_penalty,
        frequency_penalty=request.frequency_penalty,
    )


def retention_of(request: ResponsesRequest) -> float | None:
    """Seconds a stored response is kept, from `metadata.retention_seconds`."""
    value = (request.metadata or {}).get(RETENTION_KEY)
    if value is None:
        return None
    if not (value.isascii() and value.isdecimal()) or not MIN_RETENTION_S <= int(value) <= MAX_RETENTION_S:
        raise refuse(
            f"metadata.{RETENTION_KEY}",
            f"must be a whole number of seconds from {MIN_RETENTION_S} to {MAX_RETENTION_S}, as a string.",
        )
    return float(value)


def input_messages(items: list[InputItem]) -> tuple[Message, ...]:
    """The items as messages. A reasoning item belongs to the assistant message that follows it."""
    messages: list[Message] = []
    thoughts: list[Part] = []
    for index, item in enumerate(items):
        path = f"input[{index}]"
        if item.type == "reasoning":
            thoughts += _thoughts(item)
            continue
        if item.type != "message":
            raise refuse(f"{path}.type", f"items of type {item.type[:64]!r} are not supported by this server.")
        message = _message(item, path)
        if thoughts and message.role is Role.ASSISTANT:
            message = Message(Role.ASSISTANT, (*thoughts, *message.parts))
        elif thoughts:
            messages.append(Message(Role.ASSISTANT, tuple(thoughts)))
        thoughts = []
        messages.append(message)
    if thoughts:
        messages.append(Message(Role.ASSISTANT, tuple(thoughts)))
    return tuple(messages)


def _message(item: InputItem, path: str) -> Message:
    if item.role is None:
        raise refuse(f"{path}.role", "is required.")
    role = _ROLES.get(item.role)
    if role is None:
        raise refuse(f"{path}.role", f"must be one of {', '.join(_ROLES)}.")
    if item.content is None:
        if role is Role.ASSISTANT:
            return Message(role, ())
        raise refuse(f"{path}.content", "is required.")
    parts = []
    for index, block in enumerate(item.content):
        text = _text(block, f"{path}.content[{index}]")
        if text:
            parts.append(Text(text))
    return Message(role, tuple(parts))


def _text(block: Block, path: str) -> str:
    if block.type in _TEXT_TYPES:
        if block.text is None:
            raise refuse(f"{path}.text", "is required.")
        return block.text
    if block.type == "refusal":
        if block.refusal is None:
            raise refuse(f"{path}.refusal", "is required.")
        return block.refusal
    raise refuse(f"{path}.type", f"content of type {block.type[:64]!r} is not supported by this server.")


def _thoughts(item: InputItem) -> list[Part]:
    """The raw reasoning if the item carries it, else its summary; an opaque item says nothing here."""
    blocks = item.content or item.summary or []
    return [Reasoning(block.text) for block in blocks if block.text]
