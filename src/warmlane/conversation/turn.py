"""One turn, dialect-neutral: what is asked, what happens, what it cost."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from warmlane.conversation.messages import Message
from warmlane.conversation.tools import TextFormat, Thinking, TokenLogprob, Tool, ToolChoice


class Dialect(StrEnum):
    """Which wire the request came over."""

    RESPONSES = "responses"
    MESSAGES = "messages"
    CHAT = "chat"


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """Sampling settings; None leaves a field to the session's default, then the model's."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: int | None = None


class Pin(msgspec.Struct, frozen=True):
    """Keep the prompt warm as far as the first `n_messages` of the request's input, for `ttl_s` seconds."""

    n_messages: int
    ttl_s: float


class TurnRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A validated request. The edge builds it; nothing behind the edge sees a wire format.

    `input` is what this request adds (Responses) or the whole history (Messages and Chat, whose clients replay it).
    `conversation_id` names a kept conversation whose end this is said at, instead of a previous response.
    `compare_to` names the turn whose prompt this one should extend, where that is not the previous response.
    `background`: its row was there before the turn began, and if it is not any more the turn leaves none.
    `domain` is the 16-byte security domain of tenant and salt; `echo` is the dialect's own JSON, kept with the stored
    row so that a later retrieve can answer with it, and never read behind the edge. `top_logprobs` asks for the log
    probability of each token of the reply's text, and of that many others beside it; None for none. `n_choices` replies
    are made of the one prompt; the conversation goes on from the first. `continues`: the input ends with the beginning
    of the reply, an assistant's message of text alone, and the reply is what comes behind it.
    """

    request_id: str
    response_id: str
    dialect: Dialect
    tenant: str
    domain: bytes
    model: str
    input: tuple[Message, ...]
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation_id: str | None = None
    compare_to: str | None = None
    prompt_cache_key: str | None = None
    store: bool = False
    background: bool = False
    retention_s: float | None = None
    sampling: Sampling = Sampling()
    max_output_tokens: int | None = None
    stop: tuple[str, ...] = ()
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    text_format: TextFormat | None = None
    thinking: Thinking = Thinking()
    top_logprobs: int | None = None
    n_choices: int = 1
    continues: bool = False
    pins: tuple[Pin, ...] = ()
    echo: bytes = b"{}"


class StopReason(StrEnum):
    """Why a successful turn ended."""

    STOP = "stop"
    LENGTH = "length"
    STOP_SEQUENCE = "stop_sequence"
    TOOL_CALLS = "tool_calls"


class Usage(msgspec.Struct, frozen=True):
    """Tokens the engine really handled. `cached_tokens` of `prompt_tokens` were not prefilled anew."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0


class CacheOutcome(StrEnum):
    """What this turn found warm.

    `hit`: its session was leased. `cold_replay`: a session was asked for and missed, and nothing else was warm.
    `prefix_hit`: no session, but the prompt shared cells with another. `fresh`: nothing was asked for, nothing reused.
    """

    HIT = "hit"
    COLD_REPLAY = "cold_replay"
    PREFIX_HIT = "prefix_hit"
    FRESH = "fresh"


class DivergenceCause(StrEnum):
    """Why a prompt shares less with an earlier turn than all of it. `PREFIX_LEFT`: no turn was named to compare with;
    it left the longest prefix that is cached in its domain. `EVICTED`: what it shares was computed once, and is not
    held any more."""

    MODEL_CHANGED = "model_changed"
    SYSTEM_CHANGED = "system_changed"
    TOOLS_CHANGED = "tools_changed"
    MESSAGES_CHANGED = "messages_changed"
    NOT_FOUND = "not_found"
    PREFIX_LEFT = "prefix_left"
    EVICTED = "evicted"


class Divergence(msgspec.Struct, frozen=True, kw_only=True):
    """Where a prompt left the turn it was compared with.

    `offset` is the token both still share up to, `missed_tokens` how many of the earlier turn's come after it; of an
    evicted prefix, how many of those before it had to be computed again. `before` and `now` are short excerpts of the
    two texts around the first difference.
    """

    cause: DivergenceCause
    offset: int = 0
    missed_tokens: int = 0
    before: str = ""
    now: str = ""


class CacheFacts(msgspec.Struct, frozen=True):
    """The cache facts of a turn. `reason` is a `sessions.MissReason` value; `divergence` is there if the prompt left
    the turn it continues or was compared with. By `prompt`, the digest of all its tokens but the last, what the engine
    keeps of it is found when it must go."""

    outcome: CacheOutcome
    reason: str
    cached_tokens: int = 0
    divergence: Divergence | None = None
    prompt: bytes = b""


class Timings(msgspec.Struct, frozen=True):
    """Where a turn's time went, in milliseconds."""

    queue_ms: float = 0.0
    prefill_ms: float = 0.0
    decode_ms: float = 0.0


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """A reply beside the first."""

    message: Message
    stop_reason: StopReason
    logprobs: tuple[TokenLogprob, ...] = ()


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that succeeded. `message` is the assistant's, with its sampled tokens; `logprobs` are its text's. `others`
    are the replies made beside it; `usage` is that of all together, the prompt counted once."""

    message: Message
    stop_reason: StopReason
    stop_sequence: str | None = None
    usage: Usage
    cache: CacheFacts
    logprobs: tuple[TokenLogprob, ...] = ()
    others: tuple[Choice, ...] = ()
    timings: Timings = Timings()

    def without_excerpts(self) -> Outcome:
        """As it may be kept: with where the prompt left another turn's, but not what that said. It may be deleted."""
        divergence = self.cache.divergence
        if divergence is None:
            return self
        divergence = msgspec.structs.replace(divergence, before="", now="")
        return msgspec.structs.replace(self, cache=msgspec.structs.replace(self.cache, divergence=divergence))
