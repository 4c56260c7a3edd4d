"""What Messages sends, as anthropic-python's types have it."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from warmlane.api.errors import AnthropicFault
from warmlane.api.headers import WarmlaneFacts

StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]


class TextBlock(msgspec.Struct, frozen=True, tag_field="type", tag="text"):
    """Without `citations`: where there are none the vendor leaves the key out, and some clients take no null there."""

    text: str


class ThinkingBlock(msgspec.Struct, frozen=True, tag_field="type", tag="thinking"):
    thinking: str
    signature: str


class ToolUseBlock(msgspec.Struct, frozen=True, tag_field="type", tag="tool_use"):
    id: str
    name: str
    input: dict[str, object]


ContentBlock = TextBlock | ThinkingBlock | ToolUseBlock


class CacheCreation(msgspec.Struct, frozen=True):
    ephemeral_5m_input_tokens: int = 0
    ephemeral_1h_input_tokens: int = 0


class OutputTokensDetails(msgspec.Struct, frozen=True):
    thinking_tokens: int = 0


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """`input_tokens` leaves out what was read from the cache: the prompt is input + read + creation."""

    input_tokens: int
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int
    cache_creation: CacheCreation = CacheCreation()
    output_tokens: int
    output_tokens_details: OutputTokensDetails = OutputTokensDetails()
    service_tier: Literal["standard"] = "standard"


class DeltaUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Cumulative, at the end of a stream."""

    input_tokens: int
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int
    output_tokens: int
    output_tokens_details: OutputTokensDetails = OutputTokensDetails()


class MissReason(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why the prompt did not reuse the one of `diagnostics.previous_message_id`. Beside the vendor's fields: the token
    at which it left it, and excerpts of both texts from there. `unavailable`: it left nothing, but what it extends was
    given up."""

    type: Literal[
        "model_changed",
        "system_changed",
        "tools_changed",
        "messages_changed",
        "previous_message_not_found",
        "unavailable",
    ]
    cache_missed_input_tokens: int | UnsetType = UNSET
    offset_tokens: int | UnsetType = UNSET
    before: str = ""
    now: str = ""


class Diagnostics(msgspec.Struct, frozen=True):
    cache_miss_reason: MissReason


class Reply(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="message"):
    """The message object; `warmlane` is there once it is whole."""

    id: str
    role: Literal["assistant"] = "assistant"
    model: str
    content: tuple[ContentBlock, ...] = ()
    stop_reason: StopReason | None = None
    stop_sequence: str | None = None
    usage: Usage
    diagnostics: Diagnostics | None = None
    warmlane: WarmlaneFacts | UnsetType = UNSET


class TokenCount(msgspec.Struct, frozen=True):
    input_tokens: int


class MessageStart(msgspec.Struct, frozen=True, tag_field="type", tag="message_start"):
    message: Reply


class BlockStart(msgspec.Struct, frozen=True, tag_field="type", tag="content_block_start"):
    index: int
    content_block: ContentBlock


class TextDelta(msgspec.Struct, frozen=True, tag_field="type", tag="text_delta"):
    text: str


class ThinkingDelta(msgspec.Struct, frozen=True, tag_field="type", tag="thinking_delta"):
    thinking: str


class SignatureDelta(msgspec.Struct, frozen=True, tag_field="type", tag="signature_delta"):
    signature: str


class InputJsonDelta(msgspec.Struct, frozen=True, tag_field="type", tag="input_json_delta"):
    partial_json: str


Delta = TextDelta | ThinkingDelta | SignatureDelta | InputJsonDelta


class BlockDelta(msgspec.Struct, frozen=True, tag_field="type", tag="content_block_delta"):
    index: int
    delta: Delta


class BlockStop(msgspec.Struct, frozen=True, tag_field="type", tag="content_block_stop"):
    index: int


class StopDelta(msgspec.Struct, frozen=True):
    stop_reason: StopReason
    stop_sequence: str | None


class MessageDelta(msgspec.Struct, frozen=True, tag_field="type", tag="message_delta"):
    delta: StopDelta
    usage: DeltaUsage


class MessageStop(msgspec.Struct, frozen=True, tag_field="type", tag="message_stop"):
    warmlane: WarmlaneFacts


class Ping(msgspec.Struct, frozen=True, tag_field="type", tag="ping"):
    pass


class Error(msgspec.Struct, frozen=True, tag_field="type", tag="error"):
    error: AnthropicFault
    request_id: str


Event = MessageStart | BlockStart | BlockDelta | BlockStop | MessageDelta | MessageStop | Ping | Error
