"""A finished turn as a Messages reply."""

from __future__ import annotations

import json
from typing import Literal, cast

from warmlane.api.headers import cache_facts
from warmlane.api.messages import wire
from warmlane.api.messages.caching import Lifetime
from warmlane.api.messages.thoughts import Thoughts
from warmlane.conversation.messages import Message, Reasoning, Text, ToolCall
from warmlane.conversation.turn import Divergence, DivergenceCause, Outcome, StopReason, Usage

MESSAGE_PREFIX = "msg_"

STOP_REASONS: dict[StopReason, wire.StopReason] = {
    StopReason.STOP: "end_turn",
    StopReason.LENGTH: "max_tokens",
    StopReason.STOP_SEQUENCE: "stop_sequence",
    StopReason.TOOL_CALLS: "tool_use",
}


_MissType = Literal["model_changed", "system_changed", "tools_changed", "messages_changed", "unavailable"]

_MISS_TYPES: dict[DivergenceCause, _MissType] = {
    DivergenceCause.MODEL_CHANGED: "model_changed",
    DivergenceCause.SYSTEM_CHANGED: "system_changed",
    DivergenceCause.TOOLS_CHANGED: "tools_changed",
    DivergenceCause.MESSAGES_CHANGED: "messages_changed",
    DivergenceCause.EVICTED: "unavailable",
}


def render_diagnostics(divergence: Divergence | None) -> wire.Diagnostics | None:
    """Of a prompt that was to be compared with another. None where it extends the other and that was still warm."""
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


class ReplyRenderer:
    """Renders what one request is answered with. `lifetime` is that of its last cache breakpoint, if it has any;
    `compared` says that it named a message to compare its prompt with."""

    def __init__(
        self, *, message_id: str, model: str, thoughts: Thoughts, lifetime: Lifetime | None, compared: bool
    ) -> None:
        self._message_id = message_id
        self._model = model
        self.thoughts = thoughts
        self._lifetime = lifetime
        self._compared = compared

    def opening(self, usage: Usage, divergence: Divergence | None) -> wire.Reply:
        """The message before it says anything."""
        return wire.Reply(
            id=self._message_id,
            model=self._model,
            usage=self.usage(usage),
            diagnostics=self._diagnostics(divergence),
        )

    def reply(self, outcome: Outcome) -> wire.Reply:
        return wire.Reply(
            id=self._message_id,
            model=self._model,
            content=tuple(self._blocks(outcome.message)),
            stop_reason=STOP_REASONS[outcome.stop_reason],
            stop_sequence=outcome.stop_sequence,
            usage=self.usage(outcome.usage),
            diagnostics=self._diagnostics(outcome.cache.divergence),
            warmlane=cache_facts(outcome.cache),
        )

    def _diagnostics(self, divergence: Divergence | None) -> wire.Diagnostics | None:
        return render_diagnostics(divergence) if self._compared else None

    def usage(self, usage: Usage) -> wire.Usage:
        written = self._written(usage)
        return wire.Usage(
            input_tokens=usage.prompt_tokens - usage.cached_tokens - written,
            cache_creation_input_tokens=written,
            cache_read_input_tokens=usage.cached_tokens,
            cache_creation=wire.CacheCreation(
                ephemeral_5m_input_tokens=written if self._lifetime == "5m" else 0,
                ephemeral_1h_input_tokens=written if self._lifetime == "1h" else 0,
            ),
            output_tokens=usage.output_tokens,
            output_tokens_details=wire.OutputTokensDetails(usage.reasoning_tokens),
        )

    def final_usage(self, usage: Usage) -> wire.DeltaUsage:
        whole = self.usage(usage)
        return wire.DeltaUsage(
            input_tokens=whole.input_tokens,
            cache_creation_input_tokens=whole.cache_creation_input_tokens,
            cache_read_input_tokens=whole.cache_read_input_tokens,
            output_tokens=whole.output_tokens,
            output_tokens_details=whole.output_tokens_details,
        )

    def _written(self, usage: Usage) -> int:
        """What was prefilled is kept, which is told where the client set a breakpoint. The prompt's last token is what
        the reply is computed from anew at every turn, and stands behind every breakpoint."""
        if self._lifetime is None:
            return 0
        return max(0, usage.prompt_tokens - usage.cached_tokens - 1)

    def _blocks(self, message: Message) -> list[wire.ContentBlock]:
        """The parts as blocks; neighbouring texts are one, as in a stream."""
        blocks: list[wire.ContentBlock] = []
        thought = ""
        for part in message.parts:
            last = blocks[-1] if blocks else None
            match part:
                case Text(text=text) if text:
                    if isinstance(last, wire.TextBlock):
                        blocks[-1] = wire.TextBlock(last.text + text)
                    else:
                        blocks.append(wire.TextBlock(text))
                case Reasoning(text=text) if text:
                    if isinstance(last, wire.ThinkingBlock):
                        blocks.pop()
                        text = thought + text
                    thought = text
                    blocks.append(self.thoughts.block(thought))
                case ToolCall():
                    blocks.append(wire.ToolUseBlock(part.call_id, part.name, _arguments(part.arguments)))
        return blocks


def _arguments(text: str) -> dict[str, object]:
    """The arguments as an object; of a call that was cut short, none."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return cast(dict[str, object], value) if isinstance(value, dict) else {}
