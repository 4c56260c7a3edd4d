"""A turn's events as a Messages stream.

    ping … · message_start · per block: start, deltas, stop · message_delta · message_stop

`message_start` waits for the real input count, and pings fill the time until then. A fault ends the stream with one
`error` event and no `message_stop`.
"""

from __future__ import annotations

from collections.abc import Iterator

from warmlane.api import sse
from warmlane.api.errors import WireError, anthropic_fault
from warmlane.api.headers import cache_facts
from warmlane.api.messages import wire
from warmlane.api.messages.render import STOP_REASONS, ReplyRenderer
from warmlane.conversation.events import (
    Finished,
    ReasoningDelta,
    Started,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    TurnEvent,
    Validated,
)
from warmlane.conversation.turn import Outcome, Usage


class MessagesStream:
    """Renders one turn."""

    def __init__(self, render: ReplyRenderer, *, request_id: str) -> None:
        self._render = render
        self._request_id = request_id
        self._late_warnings: tuple[str, ...] = ()
        self._index = -1
        self._open: type[wire.ContentBlock] | None = None
        self._thinking: list[str] = []

    def opening(self) -> Iterator[bytes]:
        yield from self.keep_alive()

    def keep_alive(self) -> Iterator[bytes]:
        yield self._frame(wire.Ping())

    def tells_in_stream(self, error: Exception) -> bool:
        return False

    def event(self, event: TurnEvent) -> Iterator[bytes]:
        match event:
            case Validated():
                self._late_warnings = event.warnings
            case Started():
                yield self._start(event)
            case TextDelta(text=text) if text:
                yield from self._ensure(wire.TextBlock, wire.TextBlock(""))
                yield self._delta(wire.TextDelta(text))
            case ReasoningDelta(text=text) if text:
                yield from self._ensure(wire.ThinkingBlock, wire.ThinkingBlock("", ""))
                self._thinking.append(text)
                if not self._render.thoughts.omitted:
                    yield self._delta(wire.ThinkingDelta(text))
            case ToolCallStarted():
                yield from self._close()
                yield self._open_block(wire.ToolUseBlock(event.call_id, event.name, {}))
            case ToolCallDelta(arguments=arguments) if arguments:
                yield self._delta(wire.InputJsonDelta(arguments))
            case Finished():
                yield from self._finish(event.outcome)

    def failure(self, error: WireError) -> Iterator[bytes]:
        yield self._frame(wire.Error(anthropic_fault(error), self._request_id))

    def _start(self, event: Started) -> bytes:
        # One output token, as the vendor sends: clients take 0 for a message that has no usage yet.
        usage = Usage(prompt_tokens=event.prompt_tokens, cached_tokens=event.cached_tokens, output_tokens=1)
        return self._frame(wire.MessageStart(self._render.opening(usage, event.divergence)))

    def _finish(self, outcome: Outcome) -> Iterator[bytes]:
        yield from self._close()
        stop = wire.StopDelta(STOP_REASONS[outcome.stop_reason], outcome.stop_sequence)
        yield self._frame(wire.MessageDelta(stop, self._render.final_usage(outcome.usage)))
        yield self._frame(wire.MessageStop(cache_facts(outcome.cache, warnings=self._late_warnings)))

    def _ensure(self, kind: type[wire.ContentBlock], empty: wire.ContentBlock) -> Iterator[bytes]:
        if self._open is not kind:
            yield from self._close()
            yield self._open_block(empty)

    def _open_block(self, block: wire.ContentBlock) -> bytes:
        self._index += 1
        self._open = type(block)
        return self._frame(wire.BlockStart(self._index, block))

    def _delta(self, delta: wire.Delta) -> bytes:
        return self._frame(wire.BlockDelta(self._index, delta))

    def _close(self) -> Iterator[bytes]:
        kind, self._open = self._open, None
        if kind is None:
            return
        if kind is wire.ThinkingBlock:
            yield self._delta(wire.SignatureDelta(self._render.thoughts.signature("".join(self._thinking))))
            self._thinking.clear()
        yield self._frame(wire.BlockStop(self._index))

    @staticmethod
    def _frame(event: wire.Event) -> bytes:
        return sse.named(str(type(event).__struct_config__.tag), event)
