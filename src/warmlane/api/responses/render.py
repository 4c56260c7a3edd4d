"""The response object from its facts: one pure function for the live answer and for a later retrieve.

A stored row keeps the facts as the turn's `echo`; with its outcome they give the same object again.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, structs

from warmlane.api.headers import cache_facts
from warmlane.api.jsonio import JsonObject
from warmlane.api.responses.drafts import Seal, output_items
from warmlane.api.responses.wire import (
    CacheDiagnostics,
    ConversationReference,
    Diagnosed,
    IncompleteDetails,
    InputTokensDetails,
    OutputItem,
    OutputTokensDetails,
    ReasoningConfig,
    Response,
    ResponseFault,
    ResponseStatus,
    ResponseUsage,
    TextConfig,
)
from warmlane.conversation.turn import CacheFacts, CacheOutcome, DivergenceCause, Outcome, StopReason, Usage

_DEFAULT_TEMPERATURE = 1.0
_DEFAULT_TOP_P = 1.0


class ResponseFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What of the request the response object repeats; its JSON is `TurnRequest.echo`.

    `temperature` and `top_p` are what the turn is sampled with; null, for a model that is gone, shows as 1. `tools`
    and `tool_choice` are the client's own JSON.
    """

    id: str
    created_at: int
    model: str
    previous_response_id: str | None = None
    conversation_id: str | None = None
    instructions: str | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    top_logprobs: int = 0
    tools: tuple[JsonObject, ...] = ()
    tool_choice: str | JsonObject = "auto"
    parallel_tool_calls: bool = True
    text: TextConfig = TextConfig()
    reasoning: ReasoningConfig = ReasoningConfig()
    truncation: Literal["auto", "disabled"] = "disabled"
    store: bool = True
    background: bool = False
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
    status: ResponseStatus,
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
        conversation=UNSET if facts.conversation_id is None else ConversationReference(facts.conversation_id),
        instructions=facts.instructions,
        output=output,
        usage=None if usage is None else wire_usage(usage),
        max_output_tokens=facts.max_output_tokens,
        max_tool_calls=facts.max_tool_calls,
        temperature=_DEFAULT_TEMPERATURE if facts.temperature is None else facts.temperature,
        top_p=_DEFAULT_TOP_P if facts.top_p is None else facts.top_p,
        presence_penalty=facts.presence_penalty or 0.0,
        frequency_penalty=facts.frequency_penalty or 0.0,
        top_logprobs=facts.top_logprobs,
        tools=facts.tools,
        tool_choice=facts.tool_choice,
        parallel_tool_calls=facts.parallel_tool_calls,
        text=facts.text,
        reasoning=facts.reasoning,
        truncation=facts.truncation,
        store=facts.store,
        background=facts.background,
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
    seal: Seal | None = None,
) -> Response:
    """The response object of a turn that succeeded. `output` is what was streamed, if it was; `seal` encrypts the
    reasoning's content."""
    cut = outcome.stop_reason is StopReason.LENGTH
    if output is None:
        output = output_items(facts.id, outcome.message, cut=cut, logprobs=outcome.logprobs, seal=seal)
    return render_response(
        facts,
        status="incomplete" if cut else "completed",
        output=output,
        usage=outcome.usage,
        cache=outcome.cache,
        completed_at=None if cut else completed_at,
    )


def wire_usage(usage: Usage) -> ResponseUsage:
    return ResponseUsage(
        input_tokens=usage.prompt_tokens,
        input_tokens_details=InputTokensDetails(cached_tokens=usage.cached_tokens),
        output_tokens=usage.output_tokens,
        output_tokens_details=OutputTokensDetails(reasoning_tokens=usage.reasoning_tokens),
        total_tokens=usage.prompt_tokens + usage.output_tokens,
    )


def _diagnostics(cache: CacheFacts) -> CacheDiagnostics:
    told, divergence = cache_facts(cache), cache.divergence
    facts = CacheDiagnostics(
        type=_diagnosed(cache),
        session_cache=told.session_cache,
        cached_tokens=told.cached_tokens,
        cache_miss_reason=told.cache_miss_reason,
        divergence=told.divergence,
    )
    if divergence is None or facts.type != "cache_miss":
        return facts
    return structs.replace(
        facts,
        reason="model_changed" if divergence.cause is DivergenceCause.MODEL_CHANGED else "input_changed",
        cache_missed_tokens=divergence.missed_tokens,
        comparison_reusable_tokens=divergence.offset,
    )


def _diagnosed(cache: CacheFacts) -> Diagnosed:
    """The vendor's word for it. A miss is one against a response that was named; for one that left another's prefix, or
    whose own was given up, there is none."""
    match cache.divergence and cache.divergence.cause:
        case None:
            return "cache_hit" if cache.outcome in (CacheOutcome.HIT, CacheOutcome.PREFIX_HIT) else "unavailable"
        case DivergenceCause.NOT_FOUND:
            return "comparison_response_not_found"
        case DivergenceCause.PREFIX_LEFT | DivergenceCause.EVICTED:
            return "unavailable"
        case _:
            return "cache_miss"
