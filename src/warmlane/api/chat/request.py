"""POST /v1/chat/completions: the wire request as a `TurnRequest`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from warmlane.api.fields import (
    Block,
    CacheSalt,
    Content,
    Lenient,
    MaxTokens,
    MinP,
    Penalty,
    Seed,
    StopList,
    Temperature,
    TopK,
    TopP,
    refuse,
    refuse_foreign,
    refuse_given,
)
from warmlane.conversation.messages import Message, Part, Reasoning, Role, Text
from warmlane.conversation.turn import Sampling

_ROLES = {role.value: role for role in (Role.SYSTEM, Role.DEVELOPER, Role.USER, Role.ASSISTANT)}


class WireMessage(Lenient):
    role: str
    content: Content | None = None
    name: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[object] | None = None
    function_call: object = None
    audio: object = None


class StreamOptions(Lenient):
    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class ChatRequest(Lenient):
    """The body. A field typed `object` is not supported, or not acted on; its value is never read."""

    model: str
    messages: Annotated[list[WireMessage], Field(min_length=1)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: MaxTokens | None = None
    max_completion_tokens: MaxTokens | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    top_k: TopK | None = None
    min_p: MinP | None = None
    seed: Seed | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    stop: StopList | None = None
    n: int | None = None
    response_format: Block | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    logit_bias: dict[str, object] | None = None
    modalities: list[str] | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    cache_salt: CacheSalt | None = None
    service_tier: str | None = None
    store: bool | None = None
    tools: list[object] | None = None
    tool_choice: object = None
    functions: list[object] | None = None
    function_call: object = None
    parallel_tool_calls: bool | None = None
    audio: object = None
    web_search_options: object = None


def check_supported(request: ChatRequest) -> None:
    """Refuse what would change the answer and is not done here. Raises `InvalidRequest`."""
    refuse_foreign(request)
    refuse_given(
        [
            ("tools", request.tools),
            ("functions", request.functions),
            ("logprobs", request.logprobs),
            ("top_logprobs", request.top_logprobs),
            ("logit_bias", request.logit_bias),
            ("audio", request.audio),
            ("web_search_options", request.web_search_options),
        ]
    )
    for name, choice in (("tool_choice", request.tool_choice), ("function_call", request.function_call)):
        if choice not in (None, "auto", "none"):
            raise refuse(name, "must be 'auto' or 'none', as no tools are given.")
    if request.n not in (None, 1):
        raise refuse("n", "must be 1; several choices are not supported by this server.")
    if request.response_format and request.response_format.type != "text":
        raise refuse("response_format", "must be of type 'text'; structured output is not supported by this server.")
    if any(modality != "text" for modality in request.modalities or ()):
        raise refuse("modalities", "must be ['text'].")


def warnings_of(request: ChatRequest) -> tuple[str, ...]:
    """The fields that are accepted and have no effect."""
    ignored = list(request.unknown)
    if request.store:
        ignored.append("store")
    if request.service_tier not in (None, "auto", "default"):
        ignored.append("service_tier")
    if request.stream_options and request.stream_options.include_obfuscation:
        ignored.append("stream_options.include_obfuscation")
    if any(message.name for message in request.messages):
        ignored.append("messages[].name")
    return tuple(ignored)


def sampling_of(request: ChatRequest) -> Sampling:
    return Sampling(
        temperature=request.temperature,
        top_p=request.top_p,
        top_k=request.top_k,
        min_p=request.min_p,
        presence_penalty=request.presence_penalty,
        frequency_penalty=request.frequency_penalty,
        seed=request.seed,
    )


def input_messages(messages: list[WireMessage]) -> tuple[Message, ...]:
    return tuple(_message(message, f"messages[{index}]") for index, message in enumerate(messages))


def _message(message: WireMessage, path: str) -> Message:
    role = _ROLES.get(message.role)
    if role is None:
        if message.role in ("tool", "function"):
            raise refuse(f"{path}.role", "tool results are not supported by this server.")
        raise refuse(f"{path}.role", f"must be one of {', '.join(_ROLES)}.")
    refuse_given(
        [
            (f"{path}.tool_calls", message.tool_calls),
            (f"{path}.function_call", message.function_call),
            (f"{path}.audio", message.audio),
        ]
    )
    parts: list[Part] = []
    if role is Role.ASSISTANT and message.reasoning_content:
        parts.append(Reasoning(message.reasoning_content))
    if message.content is None and role is not Role.ASSISTANT:
        raise refuse(f"{path}.content", "is required.")
    for index, block in enumerate(message.content or ()):
        text = _text(block, f"{path}.content[{index}]")
        if text:
            parts.append(Text(text))
    if message.content is None and message.refusal:
        parts.append(Text(message.refusal))
    return Message(role, tuple(parts))


def _text(block: Block, path: str) -> str:
    if block.type == "text":
        if block.text is None:
            raise refuse(f"{path}.text", "is required.")
        return block.text
    if block.type == "refusal":
        if block.refusal is None:
            raise refuse(f"{path}.refusal", "is required.")
        return block.refusal
    raise refuse(f"{path}.type", f"content of type {block.type[:64]!r} is not supported by this server.")
