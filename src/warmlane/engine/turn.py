"""One turn inside the scheduler: what is computed, what was sampled, what the client has."""

from __future__ import annotations

from collections.abc import Callable

from warmlane.engine.chains import Chain
from warmlane.engine.protocol import Chunk, Ended, EndReason, GenerateRequest
from warmlane.engine.sampler import Sampler
from warmlane.engine.text import TextAssembler
from warmlane.engine.vectors import Int32Array, IntVector


class Turn:
    """State of one `generate`.

    `tokens` is the prompt followed by what was sampled; the chain holds a prefix of it. Whatever of `tokens` is not
    computed yet is prefill: a decode step is the case of one such token, and a turn that lost its chain computes all of
    them again without sampling (or sending) any a second time.

    `short` turns had little to compute when they were placed, `stalled` ones cannot be computed now. `follows` is the
    turn whose prefill this one waits for, up to `follows_to` tokens; an `alone` one shares nothing with anybody.
    """

    __slots__ = (
        "alone",
        "chain",
        "failed_drivers",
        "first_token_at",
        "follows",
        "follows_to",
        "id",
        "n_prompt",
        "placed_at",
        "request",
        "sampler",
        "short",
        "stalled",
        "text",
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
        self.chain: Chain | None = None
        self.placed_at: float | None = None
        self.first_token_at: float | None = None
        self.unreported = 0
        self.short = False
        self.stalled = False
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

    def next_tokens(self, limit: int) -> Int32Array:
        """The next tokens to compute, `limit` at most; a view of `tokens`."""
        return self.tokens.view[self.computed : self.computed + limit]

    def accept(self, token: int, piece: bytes | None, now: float) -> tuple[Chunk | None, EndReason | None]:
        """Take the sampled token; `piece` None means it ended the reply. Returns what to send and why it is over."""
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
            if self.text.matched is not None:
                reason = EndReason.STOP_SEQUENCE
            elif self.n_output >= self.request.max_tokens or len(self.tokens) >= self.window:
                reason = EndReason.LENGTH
        if reason is not None and reason is not EndReason.STOP_SEQUENCE:
            text += self.text.finish()
        if not text:
            return None, reason
        chunk = Chunk(text, self.unreported)
        self.unreported = 0
        return chunk, reason

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
