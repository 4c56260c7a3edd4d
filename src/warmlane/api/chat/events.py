"""A turn's events as a Chat Completions stream.

role chunks · delta chunks · finish_reason chunks · (usage chunk) · [DONE]

A chunk is of one choice. All of them are open until the turn has ended.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import UNSET, UnsetType

from warmlane.api import sse
from warmlane.api.chat import wire
from warmlane.api.chat.render import FINISH_REASONS, choices_of, render_logprobs, render_usage
from warmlane.api.errors import WireError, openai_fault
from warmlane.api.headers import WarmlaneFacts, cache_facts
from warmlane.conversation.events import (
    Delta,
    Finished,
    OtherChoice,
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

    def __init__(self, *, completion_id: str, created: int, model: str, n_choices: int, include_usage: bool) -> None:
        self._id = completion_id
        self._created = created
        self._model = model
        self._n_choices = n_choices
        self._include_usage = include_usage
        self._late_warnings: tuple[str, ...] = ()

    def opening(self) -> Iterator[bytes]:
        for index in range(self._n_choices):
            yield self._delta(index, wire.Delta(role="assistant", content=""))

    def keep_alive(self) -> Iterator[bytes]:
        yield sse.COMMENT

    def tells_in_stream(self, error: Exception) -> bool:
        return False

    def event(self, event: TurnEvent) -> Iterator[bytes]:
        match event:
            case Validated():
                self._late_warnings = event.warnings
            case OtherChoice():
                yield from self._said(event.index, event.delta)
            case TextDelta() | ReasoningDelta() | ToolCallStarted() | ToolCallDelta():
                yield from self._said(0, event)
            case Finished():
                yield from self._finish(event.outcome)

    def failure(self, error: WireError) -> Iterator[bytes]:
        yield sse.plain(wire.Error(openai_fault(error)))

    def _said(self, index: int, said: Delta) -> Iterator[bytes]:
        match said:
            case TextDelta() if said.text or said.logprobs:
                yield self._delta(index, wire.Delta(content=said.text), logprobs=render_logprobs(said.logprobs))
            case ReasoningDelta(text=text) if text:
                yield self._delta(index, wire.Delta(reasoning_content=text))
            case ToolCallStarted():
                named = wire.FunctionDelta(name=said.name, arguments="")
                call = wire.ToolCallDelta(index=said.index, id=said.call_id, type="function", function=named)
                yield self._delta(index, wire.Delta(tool_calls=(call,)))
            case ToolCallDelta(arguments=arguments) if arguments:
                piece = wire.ToolCallDelta(index=said.index, function=wire.FunctionDelta(arguments=arguments))
                yield self._delta(index, wire.Delta(tool_calls=(piece,)))

    def _finish(self, outcome: Outcome) -> Iterator[bytes]:
        facts = cache_facts(outcome.cache, warnings=self._late_warnings)
        choices = choices_of(outcome)
        for index, said in enumerate(choices):
            finish = wire.ChunkChoice(index=index, delta=wire.Delta(), finish_reason=FINISH_REASONS[said.stop_reason])
            last = index == len(choices) - 1 and not self._include_usage
            yield self._chunk((finish,), warmlane=facts if last else UNSET)
        if self._include_usage:
            yield self._chunk((), usage=render_usage(outcome.usage), warmlane=facts)
        yield sse.DONE

    def _delta(self, index: int, delta: wire.Delta, *, logprobs: wire.Logprobs | None = None) -> bytes:
        return self._chunk((wire.ChunkChoice(index=index, delta=delta, logprobs=logprobs),))

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
