"""What Responses sends, as the vendor's types have it: items, the response object, the stream's events.

Field names and required keys follow openai-python's `types/responses`; the keys that must be present, null or not, are
those of the Open Responses schema.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from warmlane.api.errors import OpenAIFault

ItemStatus = Literal["in_progress", "completed", "incomplete"]


class OutputText(msgspec.Struct, frozen=True, tag_field="type", tag="output_text"):
    text: str
    annotations: tuple[()] = ()
    logprobs: tuple[()] = ()


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


class FunctionCallItem(msgspec.Struct, frozen=True, tag_field="type", tag="function_call"):
    id: str
    status: ItemStatus
    call_id: str
    name: str
    arguments: str = ""


OutputItem = MessageItem | ReasoningItem | FunctionCallItem


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


class TextFormat(msgspec.Struct, frozen=True):
    type: Literal["text"] = "text"


class TextConfig(msgspec.Struct, frozen=True):
    format: TextFormat = TextFormat()


class ReasoningConfig(msgspec.Struct, frozen=True):
    """What was applied, not what was asked for."""

    effort: None = None
    summary: None = None


class CacheDiagnostics(msgspec.Struct, frozen=True):
    """`prompt_cache_diagnostics`, with facts of our own beside the vendor's fields: what the lane found warm, and on a
    miss excerpts of both texts from the token on at which the prompt left the other one."""

    type: Literal["cache_hit", "cache_miss", "comparison_response_not_found", "unavailable"]
    session_cache: str
    cached_tokens: int
    cache_miss_reason: str
    reason: Literal["model_changed", "input_changed"] | UnsetType = UNSET
    cache_missed_tokens: int | UnsetType = UNSET
    comparison_reusable_tokens: int | UnsetType = UNSET
    before: str | UnsetType = UNSET
    now: str | UnsetType = UNSET


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """The response object. `created_at` and `completed_at` are in Unix seconds."""

    id: str
    object: Literal["response"] = "response"
    created_at: int
    completed_at: int | None = None
    status: Literal["in_progress", "completed", "incomplete", "failed"]
    error: ResponseFault | None = None
    incomplete_details: IncompleteDetails | None = None
    model: str
    previous_response_id: str | None
    instructions: str | None
    output: tuple[OutputItem, ...] = ()
    usage: ResponseUsage | None = None
    max_output_tokens: int | None
    max_tool_calls: int | None
    temperature: float
    top_p: float
    presence_penalty: float
    frequency_penalty: float
    top_logprobs: int = 0
    tools: tuple[()] = ()
    tool_choice: Literal["auto", "none"]
    parallel_tool_calls: bool
    text: TextConfig = TextConfig()
    reasoning: ReasoningConfig = ReasoningConfig()
    truncation: Literal["disabled"] = "disabled"
    store: bool
    background: Literal[False] = False
    service_tier: Literal["default"] = "default"
    metadata: dict[str, str]
    user: str | None
    safety_identifier: str | None
    prompt_cache_key: str | None
    prompt_cache_diagnostics: CacheDiagnostics | None = None


class _Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    sequence_number: int


class Created(_Event, frozen=True, kw_only=True, tag="response.created"):
    response: Response


class InProgress(_Event, frozen=True, kw_only=True, tag="response.in_progress"):
    response: Response


class Completed(_Event, frozen=True, kw_only=True, tag="response.completed"):
    response: Response


class Incomplete(_Event, frozen=True, kw_only=True, tag="response.incomplete"):
    response: Response


class FailedEvent(_Event, frozen=True, kw_only=True, tag="response.failed"):
    response: Response


class ItemAdded(_Event, frozen=True, kw_only=True, tag="response.output_item.added"):
    output_index: int
    item: OutputItem


class ItemDone(_Event, frozen=True, kw_only=True, tag="response.output_item.done"):
    output_index: int
    item: OutputItem


class _ItemEvent(_Event, frozen=True, kw_only=True):
    item_id: str
    output_index: int


class ContentPartAdded(_ItemEvent, frozen=True, kw_only=True, tag="response.content_part.added"):
    content_index: int = 0
    part: OutputText


class ContentPartDone(_ItemEvent, frozen=True, kw_only=True, tag="response.content_part.done"):
    content_index: int = 0
    part: OutputText


class OutputTextDelta(_ItemEvent, frozen=True, kw_only=True, tag="response.output_text.delta"):
    content_index: int = 0
    delta: str
    logprobs: tuple[()] = ()


class OutputTextDone(_ItemEvent, frozen=True, kw_only=True, tag="response.output_text.done"):
    content_index: int = 0
    text: str
    logprobs: tuple[()] = ()


class SummaryPartAdded(_ItemEvent, frozen=True, kw_only=True, tag="response.reasoning_summary_part.added"):
    summary_index: int = 0
    part: SummaryText


class SummaryPartDone(_ItemEvent, frozen=True, kw_only=True, tag="response.reasoning_summary_part.done"):
    summary_index: int = 0
    part: SummaryText


class SummaryTextDelta(_ItemEvent, frozen=True, kw_only=True, tag="response.reasoning_summary_text.delta"):
    summary_index: int = 0
    delta: str


class SummaryTextDone(_ItemEvent, frozen=True, kw_only=True, tag="response.reasoning_summary_text.done"):
    summary_index: int = 0
    text: str


class ArgumentsDelta(_ItemEvent, frozen=True, kw_only=True, tag="response.function_call_arguments.delta"):
    delta: str


class ArgumentsDone(_ItemEvent, frozen=True, kw_only=True, tag="response.function_call_arguments.done"):
    name: str
    arguments: str


class ErrorEvent(_Event, frozen=True, kw_only=True, tag="error"):
    """Flat and nested at once: some clients read the one, some the other. No other event has a key `error`."""

    code: str | None
    message: str
    param: str | None
    error: OpenAIFault


Event = (
    Created
    | InProgress
    | Completed
    | Incomplete
    | FailedEvent
    | ItemAdded
    | ItemDone
    | ContentPartAdded
    | ContentPartDone
    | OutputTextDelta
    | OutputTextDone
    | SummaryPartAdded
    | SummaryPartDone
    | SummaryTextDelta
    | SummaryTextDone
    | ArgumentsDelta
    | ArgumentsDone
    | ErrorEvent
)
