"""What the rest of Warmlane knows of an engine.

An engine is one loaded model behind a worker process (or, in tests, an object in this process). It decides which KV
cells exist; everyone else names them only by `OwnerId`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from enum import StrEnum
from typing import Protocol, runtime_checkable

import msgspec

from warmlane.conversation.tools import TokenLogprob


class OwnerId(msgspec.Struct, frozen=True, order=True):
    """The name of one conversation's cells. Never reused: `serial` counts up for the life of the server process, and
    `generation` is that of the worker the owner was made for."""

    generation: int
    serial: int


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True):
    """Resolved sampling settings. `temperature` 0 is greedy (argmax); `top_k` 0, `top_p` 1 and `min_p` 0 switch each
    filter off; `seed` None draws one from the system."""

    temperature: float = 0.8
    top_p: float = 0.95
    top_k: int = 40
    min_p: float = 0.05
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None


class EngineInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Facts of a loaded model, fixed for the life of one worker.

    `capacity` is how many turns run at once (1 means flat, whatever `block_paged` says); `n_ctx` is the window of one
    turn in tokens (prompt and output). `tokenizer` fingerprints the vocabulary: sampled ids are replayed only under an
    equal one. `special_tokens` are the texts the tokenizer turns into control tokens.
    """

    model: str
    fingerprint: str
    tokenizer: str
    n_ctx: int
    capacity: int
    block_paged: bool
    generation: int
    chat_template: str | None
    bos_token: str
    eos_token: str
    add_bos: bool
    special_tokens: tuple[str, ...]
    sampling: SamplingParams


class TextPiece(msgspec.Struct, frozen=True):
    """Text to tokenize. With `special`, the texts of control tokens become those tokens; without, they stay text.
    `bos` asks for the model's own opening tokens in front, if the model wants any. `joined` text goes on behind sampled
    tokens: a tokenizer that puts a space in front of a text puts none there."""

    text: str
    special: bool
    bos: bool = False
    joined: bool = False


class PinnedPrefix(msgspec.Struct, frozen=True):
    """The first `n_tokens` of a prompt are to stay warm for `ttl_s` seconds from when it is placed, as far as bounds
    allow."""

    n_tokens: int
    ttl_s: float


class ThoughtLimit(msgspec.Struct, frozen=True, kw_only=True):
    """At most `max_tokens` tokens of a reply are reasoning, but for those that finish a character or a mark; then the
    tokens of `ending` follow. Reasoning stands at the start of the reply and behind other reasoning, between one of
    `opens` and one of `closes`; `inside`: the prompt has opened it."""

    max_tokens: int
    opens: tuple[str, ...]
    closes: tuple[str, ...]
    ending: tuple[int, ...]
    inside: bool = False


class GenerateRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One turn for the engine. `domain` (16 bytes) bounds what prefixes it may share; `prompt` is the whole prompt in
    token ids, however much of it is warm. `max_tokens` counts sampled tokens; generation also ends at the window.

    `grammar` (llguidance's Lark syntax) is what the reply must match; generation ends where it can only end.
    `top_logprobs` asks for each token's log probability, and of that many others beside it. With `special_text`,
    control tokens that do not end the reply come out as their text, and are that text to `grammar` and `stop` too.
    A `spare` turn takes a seat that no other turn wants, and waits whenever one does. `thought` bounds reasoning, whose
    marks it needs to see as text.
    """

    owner: OwnerId
    domain: bytes
    prompt: tuple[int, ...]
    sampling: SamplingParams
    max_tokens: int
    stop: tuple[str, ...] = ()
    grammar: str | None = None
    top_logprobs: int | None = None
    special_text: bool = False
    pins: tuple[PinnedPrefix, ...] = ()
    spare: bool = False
    thought: ThoughtLimit | None = None


class EndReason(StrEnum):
    """Why generation ended: an end-of-generation token or a grammar that allows no more, `max_tokens` or the window, a
    stop string."""

    STOP = "stop"
    LENGTH = "length"
    STOP_SEQUENCE = "stop_sequence"


class Divergence(msgspec.Struct, frozen=True):
    """Where a prompt left the tokens it agrees with the longest, of all that are cached in its domain: at token
    `offset`, with `cached_tokens` of them in all. `cached` and `prompt` are the texts of the next few tokens on each
    side."""

    offset: int
    cached_tokens: int
    cached: str
    prompt: str


class Placed(msgspec.Struct, frozen=True, tag="placed"):
    """First event: the sequence has cells; `cached_tokens` of the prompt are warm (at most `prompt_tokens` - 1), and
    came from the tiers `hot`, `ram` and `disk`. `divergence` is None where the prompt extends what is cached, or
    nothing is."""

    prompt_tokens: int
    cached_tokens: int
    hot_tokens: int = 0
    ram_tokens: int = 0
    disk_tokens: int = 0
    divergence: Divergence | None = None


class Chunk(msgspec.Struct, frozen=True, tag="chunk"):
    """New text. Whole characters only; anything that may be the start of a stop string is held back. `n_tokens` is how
    many tokens were sampled since the last chunk. `token_ids` are those sampled since the last chunk that had any; none
    while the text of the last token is not delivered whole, so that all so far stand for the text so far.

    `logprobs`, where they were asked for, are those of the tokens whose text is whole with this chunk and was not with
    the last: a token of which only a part is delivered, before a stop string, has none, nor has one without text. They
    are of the model's own distribution: no penalty, temperature or grammar changes them.
    """

    text: str
    n_tokens: int
    logprobs: tuple[TokenLogprob, ...] = ()
    token_ids: tuple[int, ...] = ()


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """Last event of a turn that succeeded.

    `output_tokens` counts every sampled token, the end-of-generation token included. `token_ids` is the longest prefix
    of the sampled ids whose text, `token_text`, is a prefix of the text delivered in chunks.
    """

    reason: EndReason
    stop_sequence: str | None
    output_tokens: int
    token_ids: tuple[int, ...]
    token_text: str
    prefill_ms: float = 0.0
    decode_ms: float = 0.0


EngineEvent = Placed | Chunk | Ended


@runtime_checkable
class CacheOwnerEngine(Protocol):
    """The part of an engine that sessions need: who owns cells, and how they are given back."""

    @property
    def generation(self) -> int:
        """The running worker's generation; it grows by one each time the worker is replaced."""
        ...

    @property
    def capacity(self) -> object:
        """How many turns run at once, as the engine reports it: judged by `sessions.is_paged`, never trusted."""
        ...

    @property
    def block_paged(self) -> object:
        """Whether live turns are isolated by owner and verified prefixes shared."""
        ...

    async def release(self, owner: OwnerId, *, purge: bool = False) -> None:
        """Give up the cells of `owner`; a no-op for one that holds none. They may stay as an idle prefix that others
        of the domain can share, unless `purge`. Takes effect between two engine steps."""
        ...

    async def truncate(self, owner: OwnerId, length: int) -> bool:
        """Cut `owner`'s cells to `length` tokens. False if the engine cannot; the cells are then undefined and the
        caller must release the owner."""
        ...

    async def reset(self) -> None:
        """Flat engines: empty the one cache. A paged engine ignores it."""
        ...


class Engine(CacheOwnerEngine, Protocol):
    """A model that answers. All methods raise `errors.EngineDied` while no worker is ready."""

    @property
    def info(self) -> EngineInfo: ...

    @property
    def ready(self) -> bool:
        """Whether a turn could be taken now."""
        ...

    def new_owner(self) -> OwnerId:
        """A fresh owner id of the running generation."""
        ...

    async def tokenize(self, pieces: Sequence[TextPiece]) -> list[list[int]]:
        """Token ids of each piece."""
        ...

    def generate(self, request: GenerateRequest) -> AsyncIterator[EngineEvent]:
        """Run one turn: Placed, Chunk…, Ended. Closing the iterator, or cancelling the task that awaits it, cancels the
        turn within one engine step; its cells then stay with the owner, valid for as far as they were computed.

        Raises `errors.EngineFault` if this turn failed, `errors.EngineDied` if the worker did,
        `errors.ContextOverflow` if the prompt can never fit, `errors.InvalidRequest` if the grammar cannot be used.
        """
        ...

    async def forget(self, domain: bytes, prompt: bytes = b"", *, at: int = 0, keep: int = 0) -> None:
        """Drop what every tier keeps of a domain: all of it but what running turns hold.

        With a `prompt`, the `digest` of its first `at` tokens, only what begins with them, from the first `keep` tokens
        on, and only where no session holds it. Takes effect between two engine steps. Where no worker is ready what was
        in memory is gone; files go at once, and the next worker knows none of it before it serves. Raises
        `errors.EngineError` if not all of that could be done, but does not where the worker ends meanwhile."""
        ...

    async def close(self) -> None:
        """Stop the worker; turns still running end in `EngineDied`."""
        ...
