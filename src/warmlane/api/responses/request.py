"""POST /v1/responses: the body, what of it is refused, and what has no effect."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from warmlane.api.fields import (
    CacheSalt,
    Lenient,
    MaxTokens,
    ModelName,
    OrString,
    Penalty,
    Temperature,
    TopP,
    refuse,
    refuse_foreign,
    refuse_given,
)
from warmlane.api.responses.options import INCLUDE_ENCRYPTED, INCLUDE_LOGPROBS, INCLUDED, ReasoningOptions, TextOptions
from warmlane.conversation.turn import Sampling

MIN_RETENTION_S = 60
MAX_RETENTION_S = 7_776_000
RETENTION_KEY = "retention_seconds"

MetadataKey = Annotated[str, Field(max_length=64)]
MetadataValue = Annotated[str, Field(max_length=512)]


def as_items(value: object) -> object:
    """A string is the user's message."""
    return [{"role": "user", "content": value}] if isinstance(value, str) and value else value


def _as_items_if_any(value: object) -> object:
    return as_items(value) or []


Items = Annotated[list[dict[str, object]], BeforeValidator(as_items), OrString()]
OptionalItems = Annotated[list[dict[str, object]], BeforeValidator(_as_items_if_any), OrString()]


class StreamOptions(Lenient):
    include_obfuscation: bool | None = None


class CacheOptions(Lenient):
    comparison_response_id: Annotated[str, Field(max_length=256)] | None = None


class ConversationRef(Lenient):
    id: Annotated[str, Field(min_length=1, max_length=256)]


def _as_reference(value: object) -> object:
    return {"id": value} if isinstance(value, str) else value


class ResponsesRequest(Lenient):
    """The body. A field typed `object` is not supported, or not acted on, or read elsewhere."""

    model: ModelName
    input: Items
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
    reasoning: ReasoningOptions | None = None
    background: bool | None = None
    tools: list[dict[str, object]] | None = None
    tool_choice: object = None
    conversation: Annotated[ConversationRef, BeforeValidator(_as_reference), OrString()] | None = None
    prompt: object = None

    @property
    def conversation_id(self) -> str | None:
        return None if self.conversation is None else self.conversation.id

    @property
    def continues(self) -> bool:
        """Whether something was said before the input."""
        return self.previous_response_id is not None or self.conversation is not None

    @property
    def encrypts_reasoning(self) -> bool:
        return INCLUDE_ENCRYPTED in (self.include or ())

    @property
    def logprobs(self) -> int | None:
        """How many other tokens to tell beside each token of the text; None for no log probabilities."""
        asked = INCLUDE_LOGPROBS in (self.include or ()) or bool(self.top_logprobs)
        return (self.top_logprobs or 0) if asked else None


class CompactRequest(ResponsesRequest):
    """The body of a compaction, which may be of what was said before alone."""

    input: OptionalItems = Field(default_factory=list)


def check_supported(request: ResponsesRequest) -> None:
    """Refuse what would change the answer and is not done here. Raises `InvalidRequest`."""
    refuse_foreign(request)
    refuse_given(
        [
            ("prompt", request.prompt),
        ]
    )
    if request.conversation is None:
        return
    if request.previous_response_id is not None:
        raise refuse("conversation", "must not be given together with previous_response_id.")
    if request.store is False:
        raise refuse("store", "must not be false in a conversation: the turn becomes a part of it.")


def warnings_of(request: ResponsesRequest) -> tuple[str, ...]:
    """The fields that are accepted and have no effect."""
    ignored = list(request.unknown)
    if request.reasoning:
        ignored += [f"reasoning.{name}" for name in request.reasoning.unknown]
    if request.text:
        ignored += [f"text.{name}" for name in request.text.unknown]
        if request.text.verbosity is not None:
            ignored.append("text.verbosity")
    if request.max_tool_calls is not None:
        ignored.append("max_tool_calls")
    if request.service_tier not in (None, "auto", "default"):
        ignored.append("service_tier")
    if request.stream_options and request.stream_options.include_obfuscation:
        ignored.append("stream_options.include_obfuscation")
    for name, options in (
        ("stream_options", request.stream_options),
        ("prompt_cache_options", request.prompt_cache_options),
    ):
        ignored += [f"{name}.{field}" for field in (options.unknown if options else ())]
    if request.store is False and RETENTION_KEY in (request.metadata or {}):
        ignored.append(f"metadata.{RETENTION_KEY}")
    ignored += [f"include[{n}]" for n, name in enumerate(request.include or ()) if name not in INCLUDED]
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
