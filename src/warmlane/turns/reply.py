"""A reply in the making: what the engine has said of it, and how it ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from warmlane.conversation.events import Delta, Started
from warmlane.conversation.messages import Message, Role, Sampled
from warmlane.conversation.turn import Divergence, StopReason
from warmlane.engine.protocol import Chunk, Ended, EndReason, EngineEvent, Placed
from warmlane.errors import EngineFault
from warmlane.turns.diagnosis import Diagnosis
from warmlane.turns.reader import ReplyReader


class Reply:
    """What the engine's events tell. `now` is a clock in seconds."""

    def __init__(self, reader: ReplyReader, *, diagnosis: Diagnosis, now: Callable[[], float]) -> None:
        self.reader = reader
        self._diagnosis = diagnosis
        self._now = now
        self._placed: Placed | None = None
        self._ended: Ended | None = None
        self._placed_at = self._first_at = now()

    @property
    def placed(self) -> Placed:
        """Raises `EngineFault` if the engine never said so."""
        if self._placed is None:
            raise EngineFault("The engine ended the turn without saying how.")
        return self._placed

    @property
    def lost(self) -> bool:
        """Whether the engine has given up some of the prompt. Raises `EngineFault` as `placed` does."""
        return self._diagnosis.lost(self.placed)

    @property
    def divergence(self) -> Divergence | None:
        """Why so little of the prompt was cached. Raises `EngineFault` as `placed` does."""
        return self._diagnosis.divergence(self.placed)

    @property
    def cut(self) -> bool:
        """A stop string that the engine does not look for has ended the reply; it must be stopped."""
        return self.reader.stopped is not None and self._ended is None

    def hear(self, event: EngineEvent) -> Sequence[Started | Delta]:
        """What to tell of an event of the engine's."""
        if isinstance(event, Placed):
            self._placed, self._placed_at = event, self._now()
            return [Started(event.prompt_tokens, event.cached_tokens, self.divergence)]
        if isinstance(event, Chunk):
            if not self.reader.n_tokens:
                self._first_at = self._now()
            return self.reader.feed(event)
        self._ended = event
        return self.reader.finish()

    def ending(self) -> Ended:
        """How it ended. Raises `EngineFault` if it did not end."""
        if self.reader.stopped is not None:
            token_ids, token_text = self.reader.kept()
            return Ended(
                reason=EndReason.STOP_SEQUENCE,
                stop_sequence=self.reader.stopped,
                output_tokens=self._ended.output_tokens if self._ended is not None else self.reader.n_tokens,
                token_ids=token_ids,
                token_text=token_text,
                prefill_ms=(self._first_at - self._placed_at) * 1000,
                decode_ms=(self._now() - self._first_at) * 1000,
            )
        if self._ended is None:
            raise EngineFault("The engine ended the turn without saying how.")
        return self._ended

    def message(self, tokenizer: str) -> Message:
        """What was said, with its tokens. Raises `EngineFault` if it did not end."""
        ended = self.ending()
        sampled = Sampled(ended.token_ids, ended.token_text, tokenizer) if ended.token_ids else None
        return Message(Role.ASSISTANT, self.reader.parts, sampled)

    @property
    def stop_reason(self) -> StopReason:
        """A reply that ended by itself and made calls waits for their results."""
        reason = self.ending().reason
        if reason is EndReason.STOP and self.reader.whole_calls:
            return StopReason.TOOL_CALLS
        return StopReason(reason.value)
