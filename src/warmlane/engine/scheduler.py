"""Continuous batching: one step computes one token of every decoding turn and one slice of one turn's prefill.

The policy is measured, not derived: with decode rows first and one turn's slice a step, streams start staggered and
the time to the first token is the lowest of those tried, at equal throughput. How long the slice may be is `pace`'s to
say, and who computes a prefix that several turns wait for, `flights`'.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

from warmlane.engine.backends.base import Backend, CacheFull, Decoded, DecodeFailed, SequenceFault, Slice
from warmlane.engine.checks import problem_of
from warmlane.engine.counters import Counters
from warmlane.engine.flights import find_driver, land, still_follows
from warmlane.engine.grammar import Constraint, GrammarError, GrammarFault
from warmlane.engine.messages import FailureKind, TurnFailed, TurnOutput
from warmlane.engine.order import Order
from warmlane.engine.pace import Pace
from warmlane.engine.prefix_cache import CacheSettings, Interest, PrefixCache
from warmlane.engine.protocol import EndReason, GenerateRequest, OwnerId
from warmlane.engine.sampler import BadLogits
from warmlane.engine.stats import EngineStats
from warmlane.engine.tiers.disk import DiskTier
from warmlane.engine.turn import Turn

COPY_AHEAD_MS = 20.0
"""How long copying while nothing runs may keep a new turn waiting."""

log = logging.getLogger(__name__)


class Scheduler:
    """Turns, their order, and the steps that advance them. Used by one thread; never blocks but in `step`.

    Turns are served first come first served, `capacity` at a time, in the order that `Order` keeps; only a turn with
    little to compute passes a long prefill, every second step. `now` is a monotonic clock in seconds, `entropy` a
    source of seeds. Every submitted turn ends in exactly one Ended or TurnFailed, unless it was cancelled first.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        capacity: int,
        flat: bool = False,
        now: Callable[[], float],
        entropy: Callable[[], int],
        pace: Pace | None = None,
        cache: CacheSettings | None = None,
        disk: DiskTier | None = None,
    ) -> None:
        info = backend.info
        self._backend = backend
        self._tokenizer = backend.tokenizer
        self._flat = flat
        self._now = now
        self._entropy = entropy
        self._window = min(info.window, info.n_cells)
        self._n_vocab = info.n_vocab
        self._pace = pace or Pace(n_batch=info.n_batch)
        self._n_batch = info.n_batch
        self.cache = PrefixCache(
            backend, sharing=not flat, settings=cache or CacheSettings(), disk=disk, interests=self._interests, now=now
        )
        self.pool = self.cache.pool
        self._order = Order(1 if flat else min(capacity, info.n_seq_max))
        self._outputs: list[TurnOutput] = []
        self._counters = Counters()
        self._short_passed = False
        self._changed = False
        self._leaving = False
        self._prompts_next = True
        self._copies_ahead = False
        self._ended_s = 0.0

    @property
    def rests_in_s(self) -> float | None:
        """Seconds until steps are of use though there is no work: what rests is copied ahead then. None if they are
        not, or while there is a turn."""
        if not self._copies_ahead or self._order.any or self._outputs:
            return None
        return max(0.0, self._ended_s + self.cache.rest_s - self._now())

    @property
    def has_work(self) -> bool:
        """Whether the next step has anything to do; not for turns that only wait for their grammar."""
        return bool(self._order.decoding or self._outputs or any(t.ready for t in self._order.queue))

    def submit(self, turn_id: int, request: GenerateRequest) -> None:
        """Queue a turn; what can never run is refused with the next step's outputs. Ids grow. A turn with a grammar
        keeps its place, and lets others pass until `compiled`."""
        running = [t.request.owner for t in self._order]
        problem = problem_of(request, window=self._window, n_vocab=self._n_vocab, running=running)
        if problem is not None:
            self._outputs.append(TurnOutput(turn_id, problem))
            return
        self._changed = True
        self._order.queue.append(Turn(turn_id, request, window=self._window, entropy=self._entropy))

    def compiled(self, turn_id: int, grammar: Constraint | GrammarError) -> None:
        """The grammar of a submitted turn, or why it has none; the turn may be gone by now."""
        turn = self._order.find(turn_id)
        if turn is None:
            return
        if isinstance(grammar, GrammarError):
            self._fail(turn, str(grammar), kind=FailureKind.INVALID)
            return
        turn.constraint, turn.ready = grammar, True

    def cancel(self, turn_id: int) -> None:
        """End the turn without another event; its cells stay its owner's as far as they were computed."""
        turn = self._order.find(turn_id)
        if turn is not None:
            self._detach(turn)
        if not self._order.any:  # and perhaps no step for a long time
            self._trim()
        self._outputs = [o for o in self._outputs if o.turn != turn_id]

    def release(self, owner: OwnerId, *, purge: bool) -> None:
        """Give up an owner's cells. A turn it still runs fails first."""
        self._fail_turn_of(owner, "The conversation's cells were released while this turn ran.")
        self.cache.release(owner, purge=purge)

    def truncate(self, owner: OwnerId, length: int) -> bool:
        """Cut an owner's cells. True also for an owner that holds none or fewer."""
        self._fail_turn_of(owner, "The conversation's cells were truncated while this turn ran.")
        chain = self.pool.of(owner)
        return chain is None or self.pool.truncate(chain, length)

    def reset(self) -> None:
        """Flat: empty the one cache. Paged: nothing."""
        if self._flat:
            for turn in tuple(self._order):
                self._fail(turn, "The engine's cache was reset while this turn ran.")
            self.cache.clear()

    def step(self) -> list[TurnOutput]:
        """Compute one batch, if there is anything to compute, and return what the turns have to say."""
        started = self._now()
        self._trim()
        self._leaving = self._let_leave()
        planned = self._plan()
        if planned:
            self._compute(planned)
            self._counters.step((self._now() - started) * 1e3)
        if not self._order.any:
            self._trim()
        if self.rests_in_s == 0.0:
            self._copies_ahead = self.cache.copy_ahead(COPY_AHEAD_MS)
        self.cache.tick()
        outputs, self._outputs = self._outputs, []
        return outputs

    def close(self, timeout_s: float) -> None:
        """Save what is warm to the disk tier, for at most this long. No turn goes on afterwards."""
        for turn in tuple(self._order):
            self._detach(turn)
        self.cache.close(timeout_s)

    def stats(self) -> EngineStats:
        return self._counters.stats(
            waiting=sum(t.chain is None for t in self._order.queue),
            following=sum(t.follows is not None for t in self._order.queue),
            prefilling=sum(t.chain is not None for t in self._order.queue),
            decoding=len(self._order.decoding),
            sequences=self._backend.info.n_seq_max,
            prefill_ms_per_token=self._pace.prefill_ms_per_token or 0.0,
            cache=self.cache,
        )

    def _trim(self) -> None:
        """Only where turns or chains came or went since the last time: it looks at every chain."""
        if self._changed:
            self._changed = False
            self.cache.trim(busy=self._order.any, decoding=bool(self._order.decoding))

    def _let_leave(self) -> bool:
        """Go on taking an idle chain out of the hot pool. Whether that takes a slice's place in this step."""
        leaver, decoding = self.cache.leaver, bool(self._order.decoding)
        prompts_wait = bool(self._order.queue)  # and have every second step, from the first on
        if not leaver.busy or not self._order.any or (decoding and prompts_wait and self._prompts_next):
            self._prompts_next = not leaver.busy
            return False
        self._prompts_next = True
        leaver.go_on(self._pace.room_ms(hurry=prompts_wait) if decoding else math.inf)
        self._changed = self._changed or not leaver.busy  # then it is the next one's turn
        return decoding

    # plan

    def _plan(self) -> list[tuple[Turn, Slice]]:
        """The next batch: decode rows, then a slice of one turn's prefill, if nothing else was done in its place."""
        while True:
            while (spare := self._order.out_of_seat()) is not None:
                self._preempt(spare)
            # First: placing it may take spare turns out.
            prefill = None if self._leaving else self._next_prefill()
            rows = [(t, t.next_slice(1)) for t in self._order.decoding[: self._n_batch]]
            if prefill is not None and prefill.chain is not None:
                limit = self._pace.slice_length(decode_rows=len(rows), short=prefill.short)
                limit = min(limit, self.cache.slice_limit(prefill.chain, prefill.remaining))
                if limit > 0:
                    rows.append((prefill, prefill.next_slice(limit)))
            if self.pool.reserve(sum(s.tokens.size for _, s in rows)):
                return rows
            self._make_room()

    def _next_prefill(self) -> Turn | None:
        """The oldest turn that can go on, or a short one behind it."""
        oldest = self._first_ready()
        if oldest is None or oldest.remaining <= self._pace.short or self._short_passed:
            self._short_passed = False
            return oldest
        passing = self._first_ready(short=True)
        self._short_passed = passing is not None
        return passing or oldest

    def _first_ready(self, *, short: bool = False) -> Turn | None:
        """The first turn in the queue that has or gets a place, with little to compute if `short`. Those who wait for
        another's prefill keep their claim on a seat, and nobody is placed before one who waits for cells."""
        seats = self._order.free_seats
        blocked = False
        for turn in self._order.waiting:
            if turn.chain is not None:
                if not short or turn.remaining <= self._pace.short:
                    return turn
            elif seats > 0 and self._waits(turn):
                seats -= 1
            elif seats > 0 and not blocked:
                if short and len(turn.tokens) - self._reusable(turn) > self._pace.short:
                    seats -= 1
                elif self._place(turn):
                    return turn
                else:
                    blocked = True
        return None

    def _waits(self, turn: Turn) -> bool:
        """Whether another turn is computing what this one would compute."""
        if still_follows(turn):
            return True
        driver = find_driver(turn, self._order.queue, lambda: self._reusable(turn))
        if driver is not None and driver.chain is not None:
            self.cache.leave_way_back(driver.chain, turn.follows_to)
        return driver is not None

    def _reusable(self, turn: Turn) -> int:
        return self.cache.reusable(turn.request.domain, turn.tokens.view)

    def _place(self, turn: Turn) -> bool:
        """Give the turn a chain. False if it has to wait until running turns give cells back."""
        request = turn.request
        while not self._has_cells_for(turn):
            spare = None if request.spare else self._order.newest(spare=True)
            if spare is None:
                return False
            self._preempt(spare)
        placement = self.cache.place(
            request.owner,
            request.domain,
            turn.tokens.view,
            share=not turn.alone,
            apart=bool(self._order.decoding) and not turn.stays,
            prefill_ms_per_token=self._pace.prefill_ms_per_token,
        )
        turn.chain, turn.follows, turn.stalled = placement.chain, None, False
        for pin in request.pins:
            self.cache.pin(request.domain, turn.tokens.view[: min(pin.n_tokens, turn.n_prompt)], pin.ttl_s)
            self.cache.leave_way_back(placement.chain, min(pin.n_tokens, turn.n_prompt))
        self._changed = True
        turn.short = turn.remaining <= self._pace.short
        if turn.placed_at is None:
            turn.placed_at = self._now()
            if not request.spare:  # its prompt was counted with the turn it goes beside
                self._counters.placed(turn.n_prompt, placement)
            self._outputs.append(TurnOutput(turn.id, turn.placed(placement)))
        return True

    def _has_cells_for(self, turn: Turn) -> bool:
        placed = self._order.placed
        running, _, _ = self.pool.cells_by_state()
        owed = running + sum(t.remaining for t in placed)
        fresh = len(turn.tokens)
        if not turn.alone:
            fresh -= self.pool.held_by_running(turn.request.owner, turn.request.domain, turn.tokens.view)
        return not placed or owed + fresh <= self.pool.table.n_cells

    def _make_room(self, refused: Turn | None = None) -> None:
        """Running turns need more cells than there are: one gives its own up. Of those that are not spare the oldest is
        never chosen, nor of spare ones alone, so there is always progress. One that was `refused` cells apart gives up
        those it has there, and stays with the others from then on."""
        turn = self._order.newest()
        assert turn is not None
        if refused is not None:
            refused.stays = True
            self._preempt(refused, drop=True)
        elif len(self._order.placed) == 1:
            self._fail(turn, "The KV cache has too few cells for this turn alone.", drop=True)
        else:
            self._preempt(turn)

    def _preempt(self, turn: Turn, *, drop: bool = False) -> None:
        """The turn starts over later, from what is left of its cells; nothing it has sent is sent again."""
        self._counters.preemptions += 1
        self._order.requeue(turn, first=True)
        self._leave_chain(turn, drop=drop)

    # compute

    def _compute(self, planned: list[tuple[Turn, Slice]]) -> None:
        started = self._now()
        try:
            decoded = self._backend.decode([s for _, s in planned])
        except CacheFull as full:
            if not self.pool.evict_one():
                self._make_room(next((t for t, piece in planned if piece.seq == full.seq), None))
        except SequenceFault as fault:
            for turn, piece in planned:
                if piece.seq == fault.seq:
                    self._fail(turn, str(fault), kind=_kind(fault))
        except DecodeFailed as failure:
            self._isolate(planned, failure)
        else:
            rows = sum(t in self._order.decoding for t, _ in planned)
            tokens = sum(s.tokens.size for _, s in planned) - rows
            took_ms = (self._now() - started) * 1e3
            self._pace.observe(decode_rows=rows, prefill_tokens=tokens, took_ms=took_ms, instead=self._leaving)
            self._take(planned, decoded)

    def _isolate(self, planned: list[tuple[Turn, Slice]], failure: DecodeFailed) -> None:
        """Find out whose rows the batch failed on: undo it, and compute each turn's rows alone."""
        log.warning("a batch of %d turns failed: %s", len(planned), failure)
        for turn, piece in planned:
            if not self._backend.truncate(piece.seq, piece.position):
                self._fail(turn, "The engine failed while it computed this turn.", drop=True)
            elif len(planned) == 1:
                message = f"The engine failed while it computed this turn: {failure}."
                self._fail(turn, message, drop=True, kind=_kind(failure))
        if len(planned) > 1:
            for turn, piece in planned:
                if turn.chain is not None:
                    self._compute([(turn, piece)])

    def _take(self, planned: list[tuple[Turn, Slice]], decoded: Decoded) -> None:
        deferred = decoded.deferred
        for index, (turn, piece) in enumerate(planned):
            if piece.seq in deferred:
                self._yield_place(turn)
                continue
            assert turn.chain is not None
            turn.stalled = False
            self.pool.grow(turn.chain, piece.tokens)
            if piece.wants_logits:
                self._advance(turn, decoded, index)
            else:
                self.cache.checkpoint(turn.chain, turn.remaining)

    def _yield_place(self, turn: Turn) -> None:
        """A turn whose prefill cannot go on now lets those behind it go first."""
        if turn in self._order.queue:
            turn.stalled = True
            self._order.requeue(turn, first=False)

    def _advance(self, turn: Turn, decoded: Decoded, index: int) -> None:
        """All of the turn's tokens are computed: sample the next."""
        if turn.request.max_tokens == 0:
            self._end(turn, EndReason.LENGTH)
            return
        try:
            chunk, reason = turn.advance(decoded.logits(index), self._tokenizer, self._now)
        except BadLogits as bad:
            self._fail(turn, str(bad), drop=True)
            return
        except GrammarFault as fault:
            self._fail(turn, f"The reply cannot be held to its grammar any further: {fault}.")
            return
        except Exception:
            log.exception("turn %d failed while its token was sampled", turn.id)
            self._fail(turn, "The engine failed while it sampled this turn.", drop=True)
            return
        self._counters.output_tokens += 1
        self._order.start_decoding(turn)
        if chunk is not None:
            self._outputs.append(TurnOutput(turn.id, chunk))
        if reason is not None:
            self._end(turn, reason)

    # ends

    def _end(self, turn: Turn, reason: EndReason) -> None:
        self._detach(turn)
        self._outputs.append(TurnOutput(turn.id, turn.ended(reason, self._now())))

    def _fail(self, turn: Turn, message: str, *, drop: bool = False, kind: FailureKind = FailureKind.FAULT) -> None:
        self._counters.faults += kind is not FailureKind.INVALID
        self._detach(turn, drop=drop, failed=True)
        self._outputs.append(TurnOutput(turn.id, TurnFailed(kind, message)))

    def _fail_turn_of(self, owner: OwnerId, message: str) -> None:
        for turn in tuple(self._order):
            if turn.request.owner == owner:
                self._fail(turn, message)

    def _detach(self, turn: Turn, *, drop: bool = False, failed: bool = False) -> None:
        """Take the turn out of the order; its chain becomes its owner's, or is dropped."""
        self._order.remove(turn)
        self._leave_chain(turn, drop=drop, failed=failed)

    def _leave_chain(self, turn: Turn, *, drop: bool = False, failed: bool = False) -> None:
        """Part the turn from its chain; the oldest of those who wait for what it was computing goes on from there,
        before anybody can drop it."""
        chain, turn.chain = turn.chain, None
        self._changed = self._copies_ahead = True
        self._ended_s = self._now()
        if chain is None:
            return
        self.pool.stop(chain)
        heir = land(turn, self._order.queue, failed=failed)
        if heir is not None:
            self._place(heir)
        if drop and self.pool.holds(chain):
            self.pool.drop(chain)

    def _interests(self) -> list[Interest]:
        return [(t.request.domain, t.tokens.view) for t in self._order]


def _kind(fault: SequenceFault | DecodeFailed) -> FailureKind:
    return FailureKind.MEMORY if fault.memory else FailureKind.FAULT
