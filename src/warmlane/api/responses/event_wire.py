"""The events of a Responses stream, as the vendor's types have them."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from warmlane.api.errors import OpenAIFault
from warmlane.api.responses.wire import Logprob, OutputItem, OutputText, Response, SummaryText


class _Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    sequence_number: int


class Created(_Event, frozen=True, kw_only=True, tag="response.created"):
    """`warnings` are what `X-Warmlane-Warnings` says elsewhere."""

    response: Response
    warnings: tuple[str, ...] | UnsetType = UNSET


class Queued(_Event, frozen=True, kw_only=True, tag="response.queued"):
    response: Response


class InProgress(_Event, frozen=True, kw_only=True, tag="response.in_progress"):
    response: Response


class _Last(_Event, frozen=True, kw_only=True):
    """`warnings` are those that came too late for the header, or for the first event."""

    response: Response
    warnings: tuple[str, ...] | UnsetType = UNSET


class Completed(_Last, frozen=True, kw_only=True, tag="response.completed"):
    pass


class Incomplete(_Last, frozen=True, kw_only=True, tag="response.incomplete"):
    pass


class FailedEvent(_Last, frozen=True, kw_only=True, tag="response.failed"):
    pass


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
    logprobs: tuple[Logprob, ...] = ()


class OutputTextDone(_ItemEvent, frozen=True, kw_only=True, tag="response.output_text.done"):
    content_index: int = 0
    text: str
    logprobs: tuple[Logprob, ...] = ()


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
    | Queued
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

Last = Completed | Incomplete | FailedEvent
"""What ends a stream."""
