"""POST /v1/chat/completions: the wire request, and what of it is not a message or a tool."""

from __future__ import annotations

from typing import Annotated

from msgspec import structs
from pydantic import Field

from warmlane.api.chat.formats import ResponseFormat
from warmlane.api.chat.history import WireMessage
from warmlane.api.fields import (
    CacheSalt,
    Lenient,
    MaxTokens,
    MinP,
    ModelName,
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
from warmlane.api.reasoning import Effort, thinking_of
from warmlane.conversation.tools import Thinking
from warmlane.conversation.turn import Sampling

MAX_TOP_LOGPROBS = 20
MAX_CHOICES = 16
"""They share one seat, so one request of many choices is as long as many turns."""

_DEPRECATED = "is deprecated and not supported; use 'tools' and 'tool_choice'."


class StreamOptions(Lenient):
    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class TemplateOptions(Lenient):
    """What other servers pass to the chat template; `enable_thinking` is what a template is asked here."""

    enable_thinking: bool | None = None


class ChatRequest(Lenient):
    """The body. A field typed `object` is not supported or not acted on, but for the tools and the choice among them,
    which are read apart."""

    model: ModelName
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
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    response_format: ResponseFormat | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)] | None = None
    logit_bias: dict[str, object] | None = None
    modalities: list[str] | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    cache_salt: CacheSalt | None = None
    service_tier: str | None = None
    store: bool | None = None
    tools: list[dict[str, object]] | None = None
    tool_choice: object = None
    functions: object = None
    function_call: object = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: Effort | None = None
    continue_final_message: bool | None = None
    add_generation_prompt: bool | None = None
    chat_template_kwargs: TemplateOptions | None = None
    audio: object = None
    web_search_options: object = None


def check_supported(request: ChatRequest) -> None:
    """Refuse what would change the answer and is not done here. Raises `InvalidRequest`."""
    refuse_foreign(request)
    refuse_given(
        [
            ("logit_bias", request.logit_bias),
            ("audio", request.audio),
            ("web_search_options", request.web_search_options),
        ]
    )
    if request.functions not in (None, []):
        raise refuse("functions", _DEPRECATED)
    if request.function_call not in (None, "auto", "none"):
        raise refuse("function_call", _DEPRECATED)
    if request.top_logprobs and not request.logprobs:
        raise refuse("top_logprobs", "needs 'logprobs' to be true.")
    if any(modality != "text" for modality in request.modalities or ()):
        raise refuse("modalities", "must be ['text'].")


def warnings_of(request: ChatRequest) -> list[str]:
    """The fields that are accepted and have no effect."""
    ignored = list(request.unknown)
    if request.chat_template_kwargs:
        ignored += [f"chat_template_kwargs.{name}" for name in request.chat_template_kwargs.unknown]
    if request.store:
        ignored.append("store")
    if request.service_tier not in (None, "auto", "default"):
        ignored.append("service_tier")
    if request.stream_options:
        ignored += [f"stream_options.{name}" for name in request.stream_options.unknown]
        if request.stream_options.include_obfuscation:
            ignored.append("stream_options.include_obfuscation")
    if any(message.name and message.role != "tool" for message in request.messages):
        ignored.append("messages[].name")
    return ignored


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


def asked_thinking(request: ChatRequest) -> Thinking:
    """What the effort says; but what the template is told in so many words comes first."""
    thinking = thinking_of(request.reasoning_effort)
    if request.chat_template_kwargs and request.chat_template_kwargs.enable_thinking is not None:
        return structs.replace(thinking, enabled=request.chat_template_kwargs.enable_thinking)
    return thinking


def top_logprobs_of(request: ChatRequest) -> int | None:
    return (request.top_logprobs or 0) if request.logprobs else None
