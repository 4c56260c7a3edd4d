"""The response object from its facts: one pure function for the live answer and for a later retrieve.

A stored row keeps the facts as the turn's `echo`; with its outcome they give the same object again.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Literal

import msgspec

from warmlane.api.headers import cache_facts
from warmlane.api.responses.wire import (
    CacheDiagnostics,
    FunctionCallItem,
    IncompleteDetails,
    InputTokensDetails,
    ItemStatus,
    MessageItem,
    OutputItem,
    OutputText,
    OutputTokensDetails,
    ReasoningItem,
    Response,
    ResponseFault,
    ResponseUsage,
    SummaryText,
)
from warmlane.conversation.messages import Message, Part, Reasoning, Text, ToolCall
from warmlane.conversation.turn import CacheFacts, CacheOutcome, DivergenceCause, Outcome, StopReason, Usage

RESPONSE_PREFIX = "resp_"
_DEFAULT_TEMPERATURE = 1.0
_DEFAULT_TOP_P = 1.0


class ResponseFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What of the request the response object repeats; its JSON is `TurnRequest.echo`.

    `temperature` and `top_p` are what the turn is sampled with; null, for a model that is gone, shows as 1.
    """

    id: str
    created_at: int
    model: str
    previous_response_id: str | None = None
    instructions: str | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    tool_choice: Literal["auto", "none"] = "auto"
    parallel_tool_calls: bool = True
    store: bool = True
    metadata: dict[str, str] = {}
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None

    def echo(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def from_echo(cls, echo: bytes) -> ResponseFacts:
        return msgspec.json.decode(echo, type=cls)


def render_response(
    facts: ResponseFacts,
    *,
    status: Literal["in_progress", "completed", "incomplete", "failed"],
    output: tuple[OutputItem, ...] = (),
    usage: Usage | None = None,
    cache: CacheFacts | None = None,
    fault: ResponseFault | None = None,
    completed_at: int | None = None,
) -> Response:
    """The response object in any state."""
    return Response(
        id=facts.id,
        created_at=facts.created_at,
        completed_at=completed_at,
        status=status,
        error=fault,
        incomplete_details=IncompleteDetails("max_output_tokens") if status == "incomplete" else None,
        model=facts.model,
        previous_response_id=facts.previous_response_id,
        instructions=facts.instructions,
        output=output,
        usage=None if usage is None else _usage(usage),
        max_output_tokens=facts.max_output_tokens,
        max_tool_calls=facts.max_tool_calls,
        temperature=_DEFAULT_TEMPERATURE if facts.temperature is None else facts.temperature,
        top_p=_DEFAULT_TOP_P if facts.top_p is None else facts.top_p,
        presence_penalty=facts.presence_penalty or 0.0,
        frequency_penalty=facts.frequency_penalty or 0.0,
        tool_choice=facts.tool_choice,
        parallel_tool_calls=facts.parallel_tool_calls,
        store=facts.store,
        metadata=facts.metadata,
        user=facts.user,
        safety_identifier=facts.safety_identifier,
        prompt_cache_key=facts.prompt_cache_key,
        prompt_cache_diagnostics=None if cache is None else _diagnostics(cache),
    )


def render_outcome(
    facts: ResponseFacts,
    outcome: Outcome,
    *,
    completed_at: int,
    output: tuple[OutputItem, ...] | None = None,
) -> Response:
    """The response object of a turn that succeeded. `output` is what was streamed, if it was."""
    cut = outcome.stop_reason is StopReason.LENGTH
    return render_response(
        facts,
        status="incomplete" if cut else "completed",
        output=output_items(facts.id, outcome.message, cut=cut) if output is None else output,
        usage=outcome.usage,
        cache=outcome.cache,
        completed_at=None if cut else completed_at,
    )


def item_id(response_id: str, kind: type[OutputItem], index: int) -> str:
    """The id of output item `index`: the response's own digits and the index, so that it is the same each time."""
    prefix = {MessageItem: "msg", ReasoningItem: "rs", FunctionCallItem: "fc"}[kind]
    return f"{prefix}_{response_id.removeprefix(RESPONSE_PREFIX)}{index:04x}"


def output_items(response_id: str, message: Message, *, cut: bool) -> tuple[OutputItem, ...]:
    """An assistant message as output items; never none, as a message of no words is still the model's answer.

    Neighbouring parts of one kind are one item, as in a stream. `cut` marks the last item incomplete.
    """
    items: list[OutputItem] = []
    groups = list(_grouped(message.parts)) or [(Text, [Text("")])]
    for index, (kind, parts) in enumerate(groups):
        status: ItemStatus = "incomplete" if cut and index == len(groups) - 1 else "completed"
        items.append(_item(response_id, index, kind, parts, status))
    return tuple(items)


def _grouped(parts: tuple[Part, ...]) -> Iterator[tuple[type[Part], list[Part]]]:
    said = [part for part in parts if not (isinstance(part, Text | Reasoning) and not part.text)]
    for kind, group in groupby(said, key=type):
        if kind is ToolCall:
            for call in group:
                yield ToolCall, [call]
        else:
            yield kind, list(group)


def _item(response_id: str, index: int, kind: type[Part], parts: list[Part], status: ItemStatus) -> OutputItem:
    first = parts[0]
    if isinstance(first, ToolCall):
        name = item_id(response_id, FunctionCallItem, index)
        return FunctionCallItem(name, status, first.call_id, first.name, first.arguments)
    text = "".join(part.text for part in parts if not isinstance(part, ToolCall))
    if kind is Reasoning:
        return ReasoningItem(item_id(response_id, ReasoningItem, index), status, (SummaryText(text),))
    return MessageItem(item_id(response_id, MessageItem, index), status, (OutputText(text),))


def _usage(usage: Usage) -> ResponseUsage:
    return ResponseUsage(
        input_tokens=usage.prompt_tokens,
        input_tokens_details=InputTokensDetails(cached_tokens=usage.cached_tokens),
        output_tokens=usage.output_tokens,
        output_tokens_details=OutputTokensDetails(reasoning_tokens=usage.reasoning_tokens),
        total_tokens=usage.prompt_tokens + usage.output_tokens,
    )


def _diagnostics(cache: CacheFacts) -> CacheDiagnostics:
    facts = cache_facts(cache)
    divergence = cache.divergence
    if divergence is not None and divergence.cause is DivergenceCause.PREFIX_LEFT:
        divergence = None  # the vendor's field is about a response that was named
    if divergence is None or divergence.cause is DivergenceCause.NOT_FOUND:
        warm = cache.outcome in (CacheOutcome.HIT, CacheOutcome.PREFIX_HIT)
        kind: Literal["cache_hit", "unavailable", "comparison_response_not_found"]
        kind = "comparison_response_not_found" if divergence else "cache_hit" if warm else "unavailable"
        return CacheDiagnostics(kind, facts.session_cache, facts.cached_tokens, facts.cache_miss_reason)
    return CacheDiagnostics(
        "cache_miss",
        facts.session_cache,
        facts.cached_tokens,
        facts.cache_miss_reason,
        reason="model_changed" if divergence.cause is DivergenceCause.MODEL_CHANGED else "input_changed",
        cache_missed_tokens=divergence.missed_tokens,
        comparison_reusable_tokens=divergence.offset,
        before=divergence.before,
        now=divergence.now,
    )
