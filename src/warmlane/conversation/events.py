"""What a running turn tells the edge, in order: Validated, Started, deltas, then exactly one of Finished or Failed.

Loading comes before Validated, where the model takes a while to load. Failed may come at any point, also first. Nothing
comes after Finished or Failed.
"""

from __future__ import annotations

from dataclasses import dataclass

from warmlane.conversation.tools import TokenLogprob
from warmlane.conversation.turn import Divergence, Outcome, Usage


@dataclass(frozen=True, slots=True)
class Loading:
    """The model is still being loaded, and the request waits for it unexamined. A stream begins, so that its client
    hears something; a Failed after this is told in it."""


@dataclass(frozen=True, slots=True)
class Validated:
    """The request is sound and its prompt fits; it now waits for a seat. A Failed before this is the client's fault or
    an overload and, unless it was Loading, has an HTTP status of its own; after it a stream may have begun. `warnings`
    name what the model or its grammar cannot do as asked."""

    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Started:
    """The prompt is placed: its length, how much of it is warm, and where it left an earlier one are known; prefill
    begins."""

    prompt_tokens: int
    cached_tokens: int
    divergence: Divergence | None = None


@dataclass(frozen=True, slots=True)
class TextDelta:
    """`logprobs` are those of the tokens of `text`, where they were asked for."""

    text: str
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ToolCallStarted:
    """Call number `index` of this turn, counted from 0."""

    index: int
    call_id: str
    name: str


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """The next piece of the JSON text of call `index`'s arguments."""

    index: int
    arguments: str


Delta = TextDelta | ReasoningDelta | ToolCallStarted | ToolCallDelta


@dataclass(frozen=True, slots=True)
class OtherChoice:
    """What choice number `index` says, of a turn that makes several. The deltas of the first, number 0, come as they
    are; those of different choices in any order."""

    index: int
    delta: Delta


@dataclass(frozen=True, slots=True)
class Finished:
    """Committed, stored if asked, adopted: a client that chains on seeing this hits."""

    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Failed:
    """The turn ended in an error; nothing of it is stored. `usage` is what it had cost by then, if it ran."""

    error: Exception
    usage: Usage | None = None


TurnEvent = Loading | Validated | Started | Delta | OtherChoice | Finished | Failed
