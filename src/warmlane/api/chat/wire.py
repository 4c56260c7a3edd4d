"""What Chat Completions sends, as openai-python's types have it."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from warmlane.api.errors import OpenAIFault
from warmlane.api.headers import WarmlaneFacts

FinishReason = Literal["stop", "length", "tool_calls"]


class PromptTokensDetails(msgspec.Struct, frozen=True):
    cached_tokens: int


class CompletionTokensDetails(msgspec.Struct, frozen=True):
    reasoning_tokens: int


class Usage(msgspec.Struct, frozen=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails


class Function(msgspec.Struct, frozen=True):
    name: str
    arguments: str


class ToolCall(msgspec.Struct, frozen=True):
    id: str
    function: Function
    type: Literal["function"] = "function"


class TopLogprob(msgspec.Struct, frozen=True):
    """`bytes` are those of the token, which may be part of a character."""

    token: str
    logprob: float
    bytes: tuple[int, ...]


class TokenLogprob(msgspec.Struct, frozen=True):
    token: str
    logprob: float
    bytes: tuple[int, ...]
    top_logprobs: tuple[TopLogprob, ...]


class Logprobs(msgspec.Struct, frozen=True):
    content: tuple[TokenLogprob, ...]
    refusal: None = None


class ReplyMessage(msgspec.Struct, frozen=True, kw_only=True):
    role: Literal["assistant"] = "assistant"
    content: str | None
    refusal: None = None
    reasoning_content: str | UnsetType = UNSET
    tool_calls: tuple[ToolCall, ...] | UnsetType = UNSET


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    index: int = 0
    message: ReplyMessage
    finish_reason: FinishReason
    logprobs: Logprobs | None = None


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """`created` is in Unix seconds."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: tuple[Choice, ...]
    usage: Usage
    warmlane: WarmlaneFacts


class FunctionDelta(msgspec.Struct, frozen=True, kw_only=True):
    name: str | UnsetType = UNSET
    arguments: str


class ToolCallDelta(msgspec.Struct, frozen=True, kw_only=True):
    """`id`, `type` and the name come with the first delta of a call only."""

    index: int
    id: str | UnsetType = UNSET
    type: Literal["function"] | UnsetType = UNSET
    function: FunctionDelta


class Delta(msgspec.Struct, frozen=True, kw_only=True):
    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    tool_calls: tuple[ToolCallDelta, ...] | UnsetType = UNSET


class ChunkChoice(msgspec.Struct, frozen=True, kw_only=True):
    index: int = 0
    delta: Delta
    finish_reason: FinishReason | None = None
    logprobs: Logprobs | None = None


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    choices: tuple[ChunkChoice, ...]
    usage: Usage | UnsetType | None = UNSET
    warmlane: WarmlaneFacts | UnsetType = UNSET


class Error(msgspec.Struct, frozen=True):
    """A fault in mid-stream: clients raise on an event with this key."""

    error: OpenAIFault
