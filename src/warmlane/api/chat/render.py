"""A finished turn as a chat completion."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET

from warmlane.api.chat import wire
from warmlane.api.headers import cache_facts
from warmlane.conversation.messages import Message
from warmlane.conversation.tools import TokenLogprob
from warmlane.conversation.turn import Choice, Outcome, StopReason, Usage

COMPLETION_PREFIX = "chatcmpl-"
IMPOSSIBLE = -9999.0

FINISH_REASONS: dict[StopReason, wire.FinishReason] = {
    StopReason.STOP: "stop",
    StopReason.LENGTH: "length",
    StopReason.STOP_SEQUENCE: "stop",
    StopReason.TOOL_CALLS: "tool_calls",
}


def render_completion(completion_id: str, *, created: int, model: str, outcome: Outcome) -> wire.Completion:
    choices = tuple(
        wire.Choice(
            index=index,
            message=_message(said.message),
            finish_reason=FINISH_REASONS[said.stop_reason],
            logprobs=render_logprobs(said.logprobs),
        )
        for index, said in enumerate(choices_of(outcome))
    )
    return wire.Completion(
        id=completion_id,
        created=created,
        model=model,
        choices=choices,
        usage=render_usage(outcome.usage),
        warmlane=cache_facts(outcome.cache),
    )


def choices_of(outcome: Outcome) -> tuple[Outcome | Choice, ...]:
    """Every reply, in the order of their numbers."""
    return (outcome, *outcome.others)


def render_usage(usage: Usage) -> wire.Usage:
    return wire.Usage(
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.output_tokens,
        total_tokens=usage.prompt_tokens + usage.output_tokens,
        prompt_tokens_details=wire.PromptTokensDetails(usage.cached_tokens),
        completion_tokens_details=wire.CompletionTokensDetails(usage.reasoning_tokens),
    )


def render_logprobs(tokens: Sequence[TokenLogprob]) -> wire.Logprobs | None:
    """None where there are none."""
    if not tokens:
        return None
    return wire.Logprobs(
        tuple(
            wire.TokenLogprob(
                token.token,
                _finite(token.logprob),
                tuple(token.data),
                tuple(wire.TopLogprob(top.token, _finite(top.logprob), tuple(top.data)) for top in token.top),
            )
            for token in tokens
        )
    )


def _finite(logprob: float) -> float:
    """JSON has no infinity; the vendor tells a token that could not come like this."""
    return max(logprob, IMPOSSIBLE)


def _message(message: Message) -> wire.ReplyMessage:
    calls = tuple(wire.ToolCall(call.call_id, wire.Function(call.name, call.arguments)) for call in message.tool_calls)
    return wire.ReplyMessage(
        content=message.text if message.text or not calls else None,
        reasoning_content=message.reasoning or UNSET,
        tool_calls=calls or UNSET,
    )
