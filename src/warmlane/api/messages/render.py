"""A finished turn as a Messages reply."""

from __future__ import annotations

import hashlib
import json
from typing import Literal, cast

from warmlane.api.messages import wire
from warmlane.conversation.messages import Message, Reasoning, Text, ToolCall
from warmlane.conversation.turn import Divergence, DivergenceCause, Outcome, StopReason, Usage

MESSAGE_PREFIX = "msg_"

STOP_REASONS: dict[StopReason, wire.StopReason] = {
    StopReason.STOP: "end_turn",
    StopReason.LENGTH: "max_tokens",
    StopReason.STOP_SEQUENCE: "stop_sequence",
    StopReason.TOOL_CALLS: "tool_use",
}


_MISS_TYPES: dict[DivergenceCause, Literal["model_changed", "system_changed", "messages_changed"]] = {
    DivergenceCause.MODEL_CHANGED: "model_changed",
    DivergenceCause.SYSTEM_CHANGED: "system_changed",
    DivergenceCause.MESSAGES_CHANGED: "messages_changed",
}


def render_reply(message_id: str, model: str, outcome: Outcome) -> wire.Reply:
    return wire.Reply(
        id=message_id,
        model=model,
        content=tuple(_blocks(outcome.message)),
        stop_reason=STOP_REASONS[outcome.stop_reason],
        stop_sequence=outcome.stop_sequence,
        usage=render_usage(outcome.usage),
        diagnostics=render_diagnostics(outcome.cache.divergence),
    )


def render_diagnostics(divergence: Divergence | None) -> wire.Diagnostics | None:
    """None where nothing was to be compared, or the prompt extends the other one."""
    if divergence is None or divergence.cause is DivergenceCause.PREFIX_LEFT:
        return None
    if divergence.cause is DivergenceCause.NOT_FOUND:
        return wire.Diagnostics(wire.MissReason(type="previous_message_not_found"))
    return wire.Diagnostics(
        wire.MissReason(
            type=_MISS_TYPES[divergence.cause],
            cache_missed_input_tokens=divergence.missed_tokens,
            offset_tokens=divergence.offset,
            before=divergence.before,
            now=divergence.now,
        )
    )


def render_usage(usage: Usage) -> wire.Usage:
    return wire.Usage(
        input_tokens=usage.prompt_tokens - usage.cached_tokens,
        cache_read_input_tokens=usage.cached_tokens,
        output_tokens=usage.output_tokens,
    )


def signature_of(thinking: str) -> str:
    """A fingerprint of a thinking block. It shows that the text is as it was sent, not who sent it."""
    return "wl1." + hashlib.sha256(thinking.encode("utf-8", "replace")).hexdigest()


def _blocks(message: Message) -> list[wire.ContentBlock]:
    """The parts as blocks; neighbouring texts are one, as in a stream."""
    blocks: list[wire.ContentBlock] = []
    for part in message.parts:
        last = blocks[-1] if blocks else None
        match part:
            case Text(text=text) if text:
                if isinstance(last, wire.TextBlock):
                    blocks[-1] = wire.TextBlock(last.text + text)
                else:
                    blocks.append(wire.TextBlock(text))
            case Reasoning(text=text) if text:
                thinking = text
                if isinstance(last, wire.ThinkingBlock):
                    thinking = last.thinking + text
                    blocks.pop()
                blocks.append(wire.ThinkingBlock(thinking, signature_of(thinking)))
            case ToolCall():
                blocks.append(wire.ToolUseBlock(part.call_id, part.name, _arguments(part.arguments)))
    return blocks


def _arguments(text: str) -> dict[str, object]:
    """The arguments as an object; of a call that was cut short, none."""
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return cast(dict[str, object], value) if isinstance(value, dict) else {}
