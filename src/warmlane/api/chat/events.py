"""A turn's events as a Chat Completions stream.

role chunk · delta chunks · finish_reason chunk · (usage chunk) · [DONE]
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import UNSET, UnsetType

from warmlane.api import sse
from warmlane.api.chat import wire
from warmlane.api.chat.render import FINISH_REASONS, render_logprobs, render_usage
from warmlane.api.errors import WireError, openai_fault
from warmlane.api.headers import WarmlaneFacts, cache_facts
from warmlane.conversation.events import (
    Finished,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    TurnEvent,
    Validated,
)
from warmlane.conversation.turn import Outcome


class ChatStream:
    """Renders one turn. With `include_usage` every chunk has a `usage`, null until the last one."""

    def __init__(self, *, completion_id: str, created: int, model: str, include_usage: bool) -> None:
        self._id = completion_id
        self._created = created
        self._model = model
        self._include_usage = include_usage
        self._late_warnings: tuple[str, ...] = ()

    def opening(self) -> Iterator[bytes]:
        yield self._delta(wire.Delta(role="assistant", content=""))

    def keep_alive(self) -> Iterator[bytes]:
        yield sse.COMMENT

    def tells_in_stream(self, error: Exception) -> bool:
        return False

    def event(self, event: TurnEvent) -> Iterator[bytes]:
        match event:
            case Validated():
                self._late_warnings = event.warnings
            case TextDelta() if event.text or event.logprobs:
                yield self._delta(wire.Delta(content=event.text), logprobs=render_logprobs(event.logprobs))
            case ReasoningDelta(text=text) if text:
                yield self._delta(wire.Delta(reasoning_content=text))
            case ToolCallStarted():
                yield self._call(
                    wire.ToolCallDelta(
                        index=event.index,
                        id=event.call_id,
                        type="function",
                        function=wire.FunctionDelta(name=event.name, arguments=""),
                    )
                )
            case ToolCallDelta(arguments=arguments) if arguments:
                yield self._call(
                    wire.ToolCallDelta(index=event.index, function=wire.FunctionDelta(arguments=arguments))
                )
            case Finished():
                yield from self._finish(event.outcome)

    def failure(self, error: WireError) -> Iterator[bytes]:
        yield sse.plain(wire.Error(openai_fault(error)))

    def _finish(self, outcome: Outcome) -> Iterator[bytes]:
        facts = cache_facts(outcome.cache, warnings=self._late_warnings)
        finish = wire.ChunkChoice(delta=wire.Delta(), finish_reason=FINISH_REASONS[outcome.stop_reason])
        if self._include_usage:
            yield self._chunk((finish,))
            yield self._chunk((), usage=render_usage(outcome.usage), warmlane=facts)
        else:
            yield self._chunk((finish,), warmlane=facts)
        yield sse.DONE

    def _call(self, delta: wire.ToolCallDelta) -> bytes:
        return self._delta(wire.Delta(tool_calls=(delta,)))

    def _delta(self, delta: wire.Delta, *, logprobs: wire.Logprobs | None = None) -> bytes:
        return self._chunk((wire.ChunkChoice(delta=delta, logprobs=logprobs),))

    def _chunk(
        self,
        choices: tuple[wire.ChunkChoice, ...],
        *,
        usage: wire.Usage | None = None,
        warmlane: WarmlaneFacts | UnsetType = UNSET,
    ) -> bytes:
        return sse.plain(
            wire.Chunk(
                id=self._id,
                created=self._created,
                model=self._model,
                choices=choices,
                usage=usage if self._include_usage else UNSET,
                warmlane=warmlane,
            )
        )
