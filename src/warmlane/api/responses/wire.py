"""What Responses answers, as the vendor's types have it: items and the response object.

Field names and required keys follow openai-python's `types/responses`; the keys that must be present, null or not, are
those of the Open Responses schema.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from warmlane.api.jsonio import JsonObject
from warmlane.conversation.turn import Divergence

Diagnosed = Literal["cache_hit", "cache_miss", "comparison_response_not_found", "unavailable"]
ItemStatus = Literal["in_progress", "completed", "incomplete"]
ResponseStatus = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]


class TopLogprob(msgspec.Struct, frozen=True):
    token: str
    logprob: float
    bytes: tuple[int, ...]


class Logprob(msgspec.Struct, frozen=True):
    token: str
    logprob: float
    bytes: tuple[int, ...]
    top_logprobs: tuple[TopLogprob, ...] = ()


class OutputText(msgspec.Struct, frozen=True, tag_field="type", tag="output_text"):
    text: str
    annotations: tuple[()] = ()
    logprobs: tuple[Logprob, ...] = ()


class SummaryText(msgspec.Struct, frozen=True, tag_field="type", tag="summary_text"):
    text: str


class MessageItem(msgspec.Struct, frozen=True, tag_field="type", tag="message"):
    id: str
    status: ItemStatus
    content: tuple[OutputText, ...] = ()
    role: Literal["assistant"] = "assistant"


class ReasoningItem(msgspec.Struct, frozen=True, tag_field="type", tag="reasoning"):
    """`encrypted_content` is left out rather than null: clients send the item back as they got it."""

    id: str
    status: ItemStatus
    summary: tuple[SummaryText, ...] = ()
    encrypted_content: str | UnsetType = UNSET


class FunctionCallItem(msgspec.Struct, frozen=True, tag_field="type", tag="function_call"):
    id: str
    status: ItemStatus
    call_id: str
    name: str
    arguments: str = ""


class CompactionItem(msgspec.Struct, frozen=True, tag_field="type", tag="compaction"):
    """Stands for all that was said before it."""

    id: str
    encrypted_content: str


OutputItem = MessageItem | ReasoningItem | FunctionCallItem | CompactionItem


class InputTokensDetails(msgspec.Struct, frozen=True):
    cached_tokens: int
    cache_write_tokens: int = 0


class OutputTokensDetails(msgspec.Struct, frozen=True):
    reasoning_tokens: int


class ResponseUsage(msgspec.Struct, frozen=True):
    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class IncompleteDetails(msgspec.Struct, frozen=True):
    reason: Literal["max_output_tokens"]


class ResponseFault(msgspec.Struct, frozen=True):
    code: str
    message: str


class PlainFormat(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    pass


class JsonObjectFormat(msgspec.Struct, frozen=True, tag_field="type", tag="json_object"):
    pass


class JsonSchemaFormat(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="json_schema"):
    """`schema` is the client's own JSON."""

    name: str
    description: str | None
    schema: JsonObject
    strict: bool


class TextConfig(msgspec.Struct, frozen=True):
    format: PlainFormat | JsonObjectFormat | JsonSchemaFormat = PlainFormat()


class ReasoningConfig(msgspec.Struct, frozen=True):
    effort: str | None = None
    summary: str | None = None


class CacheDiagnostics(msgspec.Struct, frozen=True):
    """`prompt_cache_diagnostics`, with the facts of `WarmlaneFacts` beside the vendor's fields, which are about the
    response that was named to compare with."""

    type: Diagnosed
    session_cache: str
    cached_tokens: int
    cache_miss_reason: str
    reason: Literal["model_changed", "input_changed"] | UnsetType = UNSET
    cache_missed_tokens: int | UnsetType = UNSET
    comparison_reusable_tokens: int | UnsetType = UNSET
    divergence: Divergence | UnsetType = UNSET


class ConversationReference(msgspec.Struct, frozen=True):
    id: str


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """The response object. `created_at` and `completed_at` are in Unix seconds; `tools` and `tool_choice` are the
    client's own JSON, with the keys that must be present."""

    id: str
    object: Literal["response"] = "response"
    created_at: int
    completed_at: int | None = None
    status: ResponseStatus
    error: ResponseFault | None = None
    incomplete_details: IncompleteDetails | None = None
    model: str
    previous_response_id: str | None
    conversation: ConversationReference | UnsetType = UNSET
    instructions: str | None
    output: tuple[OutputItem, ...] = ()
    usage: ResponseUsage | None = None
    max_output_tokens: int | None
    max_tool_calls: int | None
    temperature: float
    top_p: float
    presence_penalty: float
    frequency_penalty: float
    top_logprobs: int
    tools: tuple[JsonObject, ...]
    tool_choice: str | JsonObject
    parallel_tool_calls: bool
    text: TextConfig
    reasoning: ReasoningConfig
    truncation: Literal["auto", "disabled"]
    store: bool
    background: bool
    service_tier: Literal["default"] = "default"
    metadata: dict[str, str]
    user: str | None
    safety_identifier: str | None
    prompt_cache_key: str | None
    prompt_cache_diagnostics: CacheDiagnostics | None = None
