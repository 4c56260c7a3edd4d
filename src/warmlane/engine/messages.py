"""Everything that travels between the server and a worker, and what a scheduler says about its turns.

Client to worker: `Start` first, then any `Command`. Worker to client: `Started` or `StartFailed` first, then `Report`s.
`call` numbers pair a question with its answer; `turn` numbers name one `generate`.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from warmlane.engine.config import EngineConfig
from warmlane.engine.protocol import Chunk, Ended, EngineInfo, GenerateRequest, OwnerId, Placed, TextPiece
from warmlane.engine.stats import EngineStats
from warmlane.errors import ContextOverflow, EngineFault, EngineOutOfMemory, InvalidRequest, WarmlaneError


class FailureKind(StrEnum):
    FAULT = "fault"
    MEMORY = "memory"
    OVERFLOW = "overflow"
    INVALID = "invalid"


class TurnFailed(msgspec.Struct, frozen=True, tag="failed"):
    """Last event of a turn that did not succeed. The numbers are those of an overflow, in tokens."""

    kind: FailureKind
    message: str
    prompt_tokens: int = 0
    limit: int = 0

    def error(self) -> WarmlaneError:
        """The exception that `generate` raises for it."""
        if self.kind is FailureKind.OVERFLOW:
            return ContextOverflow(self.prompt_tokens, self.limit)
        if self.kind is FailureKind.INVALID:
            return InvalidRequest(self.message)
        if self.kind is FailureKind.MEMORY:
            return EngineOutOfMemory(self.message)
        return EngineFault(self.message)


TurnEvent = Placed | Chunk | Ended | TurnFailed


class TurnOutput(msgspec.Struct, frozen=True, array_like=True):
    """One event of one turn."""

    turn: int
    event: TurnEvent


class Start(msgspec.Struct, frozen=True, tag="start"):
    """Load this; the engine's owners are of this generation."""

    config: EngineConfig
    generation: int


class Tokenize(msgspec.Struct, frozen=True, tag="tokenize"):
    call: int
    pieces: tuple[TextPiece, ...]


class Submit(msgspec.Struct, frozen=True, tag="submit"):
    turn: int
    request: GenerateRequest


class Cancel(msgspec.Struct, frozen=True, tag="cancel"):
    turn: int


class Release(msgspec.Struct, frozen=True, tag="release"):
    call: int
    owner: OwnerId
    purge: bool


class Truncate(msgspec.Struct, frozen=True, tag="truncate"):
    call: int
    owner: OwnerId
    length: int


class Forget(msgspec.Struct, frozen=True, tag="forget"):
    call: int
    domain: bytes
    prompt: bytes
    at: int
    keep: int


class Reset(msgspec.Struct, frozen=True, tag="reset"):
    call: int


class AskStats(msgspec.Struct, frozen=True, tag="ask_stats"):
    call: int


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """Free the model and exit 0."""


Command = Start | Tokenize | Submit | Cancel | Release | Truncate | Forget | Reset | AskStats | Stop


class Started(msgspec.Struct, frozen=True, tag="started"):
    info: EngineInfo


class StartFailed(msgspec.Struct, frozen=True, tag="start_failed"):
    """One line that says what was wrong and how to fix it."""

    reason: str


class Tokenized(msgspec.Struct, frozen=True, tag="tokenized"):
    call: int
    ids: list[list[int]]


class Done(msgspec.Struct, frozen=True, tag="done"):
    """A release, truncate, forget or reset took effect; `ok` is truncate's or forget's answer."""

    call: int
    ok: bool


class StatsReport(msgspec.Struct, frozen=True, tag="stats"):
    call: int
    stats: EngineStats


class TurnOutputs(msgspec.Struct, frozen=True, tag="turns"):
    """What one engine step produced, in order."""

    outputs: list[TurnOutput]


Report = Started | StartFailed | Tokenized | Done | StatsReport | TurnOutputs
