"""One turn inside the scheduler: what is computed, what was sampled, what the client has."""

from __future__ import annotations

from collections.abc import Callable

from warmlane.engine.backends.base import LogitsRow, Slice, Tokenizer
from warmlane.engine.chains import Chain
from warmlane.engine.grammar import Constraint
from warmlane.engine.logprobs import LogprobQueue
from warmlane.engine.prefix_cache import Placement
from warmlane.engine.protocol import Chunk, Ended, EndReason, GenerateRequest, Placed
from warmlane.engine.sampler import Sampler
from warmlane.engine.text import TextAssembler
from warmlane.engine.thought import ThoughtWatch
from warmlane.engine.vectors import IntVector


class Turn:
    """State of one `generate`.

    `tokens` is the prompt followed by what was sampled; the chain holds a prefix of it. Whatever of `tokens` is not
    computed yet is prefill: a decode step is the case of one such token, and a turn that lost its chain computes all of
    them again without sampling (or sending) any a second time.

    `short` turns had little to compute when they were placed, `stalled` ones cannot be computed now, and one that
    `stays` is not set apart from the others any more. `follows` is the
    turn whose prefill this one waits for, up to `follows_to` tokens; an `alone` one shares nothing with anybody. A turn
    is `ready` once the grammar it asks for is compiled; `constraint` then follows what was sampled, whatever happens to
    the chain.
    """

    __slots__ = (
        "alone",
        "chain",
        "constraint",
        "failed_drivers",
        "first_token_at",
        "follows",
        "follows_to",
        "id",
        "logprobs",
        "n_prompt",
        "named",
        "placed_at",
        "ready",
        "request",
        "sampler",
        "short",
        "stalled",
        "stays",
        "text",
        "thought",
        "tokens",
        "unreported",
        "window",
    )

    def __init__(self, turn_id: int, request: GenerateRequest, *, window: int, entropy: Callable[[], int]) -> None:
        self.id = turn_id
        self.request = request
        self.window = window
        self.tokens = IntVector(request.prompt)
        self.n_prompt = len(self.tokens)
        self.sampler = Sampler(request.sampling, entropy=entropy)
        self.text = TextAssembler(request.stop)
        self.logprobs = LogprobQueue(request.top_logprobs) if request.top_logprobs is not None else None
        self.thought = ThoughtWatch(request.thought) if request.thought is not None else None
        self.constraint: Constraint | None = None
        self.ready = request.grammar is None
        self.chain: Chain | None = None
        self.placed_at: float | None = None
        self.first_token_at: float | None = None
        self.unreported = 0
        self.named = 0
        self.short = False
        self.stalled = False
        self.stays = False
        self.follows: Turn | None = None
        self.follows_to = 0
        self.failed_drivers = 0
        self.alone = False

    @property
    def n_output(self) -> int:
        return len(self.tokens) - self.n_prompt

    @property
    def computed(self) -> int:
        return len(self.chain) if self.chain is not None else 0

    @property
    def remaining(self) -> int:
        """Tokens to compute before the next can be sampled; at least 1."""
        return len(self.tokens) - self.computed

    @property
    def drives(self) -> bool:
        """Whether the turn is computing tokens that others may wait for."""
        return self.chain is not None and self.remaining > 1 and not self.stalled

    def next_slice(self, limit: int) -> Slice:
        """The next tokens to compute, `limit` at most. The turn has a chain."""
        assert self.chain is not None
        tokens = self.tokens.view[self.computed : self.computed + limit]
        return Slice(self.chain.seq, self.computed, tokens.copy(), wants_logits=len(tokens) == self.remaining)

    def advance(
        self, row: LogitsRow, tokenizer: Tokenizer, now: Callable[[], float]
    ) -> tuple[Chunk | None, EndReason | None]:
        """Sample the next token from its logits. Returns what to send, and why the reply is over if it is.

        Raises `sampler.BadLogits`, `grammar.GrammarFault`.
        """
        token = self._next(row)
        if tokenizer.is_eog(token):
            return self._take(token, None, now())
        piece = tokenizer.piece(token, special=self.request.special_text)
        if self.logprobs is not None:
            self.logprobs.add(self.n_output, token, piece, row, tokenizer)
        complete = self.constraint is not None and self.constraint.accept(token)
        return self._take(token, piece, now(), complete=complete)

    def _next(self, row: LogitsRow) -> int:
        allowed = self.constraint.allowed() if self.constraint is not None else None
        forced = self.thought.forced() if self.thought is not None else None
        if self.thought is None or forced is None:
            return self.sampler.sample(row, allowed)
        if allowed is None or allowed[forced]:
            return forced
        self.thought.give_up()
        return self.sampler.sample(row, allowed)

    def _take(
        self, token: int, piece: bytes | None, now: float, *, complete: bool = False
    ) -> tuple[Chunk | None, EndReason | None]:
        """`piece` None means that the token ended the reply, `complete` that nothing may follow it."""
        if self.first_token_at is None:
            self.first_token_at = now
        self.tokens.append(token)
        self.unreported += 1
        reason: EndReason | None = None
        text = ""
        if piece is None:
            reason = EndReason.STOP
        else:
            text = self.text.push(piece)
            if self.thought is not None:
                self.thought.saw(token, piece, whole=self.text.between_characters)
            if self.text.matched is not None:
                reason = EndReason.STOP_SEQUENCE
            elif complete:
                reason = EndReason.STOP
            elif self.n_output >= self.request.max_tokens or len(self.tokens) >= self.window:
                reason = EndReason.LENGTH
        if reason is not None and reason is not EndReason.STOP_SEQUENCE:
            text += self.text.finish()
        if not text:
            return None, reason
        logprobs = self.logprobs.take(self.text.n_whole) if self.logprobs is not None else ()
        chunk = Chunk(text, self.unreported, logprobs, self._named())
        self.unreported = 0
        return chunk, reason

    def _named(self) -> tuple[int, ...]:
        """The tokens not named in a chunk yet, if the text of all of them is delivered."""
        if self.text.n_whole != self.n_output:
            return ()
        ids = self.tokens.view[self.n_prompt + self.named :]
        self.named = self.n_output
        return tuple(ids.tolist())

    def placed(self, placement: Placement) -> Placed:
        """The first event."""
        return Placed(
            self.n_prompt,
            len(placement.chain),
            hot_tokens=placement.hot,
            ram_tokens=placement.ram,
            disk_tokens=placement.disk,
            divergence=placement.divergence,
        )

    def ended(self, reason: EndReason, now: float) -> Ended:
        """The last event."""
        n_faithful, text = self.text.faithful()
        placed = self.placed_at if self.placed_at is not None else now
        first = self.first_token_at if self.first_token_at is not None else now
        return Ended(
            reason=reason,
            stop_sequence=self.text.matched,
            output_tokens=self.n_output,
            token_ids=tuple(self.tokens.view[self.n_prompt : self.n_prompt + n_faithful].tolist()),
            token_text=text,
            prefill_ms=(first - placed) * 1e3,
            decode_ms=(now - first) * 1e3,
        )
