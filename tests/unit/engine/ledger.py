"""What the turns that were asked of a bench owe: how each must end follows from what was done to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import cache

import numpy as np

from unit.engine.harness import DOMAIN, Bench, bench
from warmlane.engine.chains import Chain
from warmlane.engine.messages import FailureKind, TurnEvent, TurnFailed
from warmlane.engine.protocol import Chunk, Ended, EndReason, OwnerId, Placed, SamplingParams

N_CELLS = 112
"""Of every bench whose turns are compared with those of `alone`: a reply ends where no more cells are."""

STEMS = ("the quick brown fox jumps over ", "the quick red fox ", "lorem ipsum dolor sit amet " * 2, "once upon a ")
TAILS = ("", "the lazy dog", "nothing at all, and then some more")
PROMPTS = tuple(stem + tail for stem in STEMS for tail in TAILS)
TOO_LONG = "y" * N_CELLS
DOMAINS = (b"a" * 16, b"b" * 16, b"c" * 16)
GRAMMARS = (
    'start: %json {"type":"object","properties":{"a":{"type":"string"},"b":{"type":"integer"}},"required":["a","b"]}',
    r'start: "<" /[!-~]{3,}/ ">"',
)


class Fate(Enum):
    """What became of a turn, apart from its reply. Those that were `HIT` by a fault may fail for it, those that were
    `LEFT` in an engine that was closed end in nothing."""

    REPLIES = auto()
    TOO_LONG = auto()
    BUSY = auto()
    LET_GO = auto()
    CANCELLED = auto()
    HIT = auto()
    LEFT = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request. `seed` None is greedy."""

    prompt: str
    owner: int = 0
    domain: bytes = DOMAIN
    max_tokens: int = 12
    seed: int | None = None
    grammar: str | None = None
    spare: bool = False

    @property
    def answer(self) -> Answer:
        return alone(self.prompt, self.max_tokens, self.seed, self.grammar)


@dataclass(frozen=True, slots=True)
class Answer:
    text: str
    reason: EndReason
    token_ids: tuple[int, ...]
    output_tokens: int


def sampling(seed: int | None) -> SamplingParams:
    return SamplingParams(temperature=0.0) if seed is None else SamplingParams(temperature=1.0, seed=seed)


def answer_of(b: Bench, turn: int) -> Answer:
    ended = b.ended(turn)
    return Answer(b.text(turn), ended.reason, ended.token_ids, ended.output_tokens)


@cache
def alone(prompt: str, max_tokens: int, seed: int | None, grammar: str | None = None) -> Answer:
    """The answer of an engine that does nothing else."""
    b = bench(n_cells=N_CELLS, hash_mode=True)
    return answer_of(b, b.ask(prompt, max_tokens=max_tokens, sampling=sampling(seed), grammar=grammar))


@dataclass(slots=True)
class Ledger:
    """The turns of one bench by number. `known` is what an earlier engine has computed, whose files this one reads."""

    bench: Bench
    known: list[Asked] = field(default_factory=list)
    asked: dict[int, Asked] = field(default_factory=dict)
    fates: dict[int, Fate] = field(default_factory=dict)
    heard: dict[int, int] = field(default_factory=dict)

    def ask(self, asked: Asked, *, compile_now: bool = True, pin_tokens: int = 0) -> int:
        fate = Fate.REPLIES
        if len(asked.prompt) + (asked.max_tokens > 0) > N_CELLS:
            fate = Fate.TOO_LONG
        elif self._running(asked.owner) is not None:
            fate = Fate.BUSY
        turn = self.bench.submit(
            asked.prompt,
            owner=asked.owner,
            domain=asked.domain,
            max_tokens=asked.max_tokens,
            sampling=sampling(asked.seed),
            grammar=asked.grammar,
            compile_now=compile_now,
            spare=asked.spare,
            pin_tokens=pin_tokens,
        )
        self.asked[turn], self.fates[turn] = asked, fate
        return turn

    def cancel(self, turn: int) -> None:
        self.bench.scheduler.cancel(turn)
        if turn in self.fates and self._terminal(turn) is None:
            self.fates[turn] = Fate.CANCELLED
            self.heard[turn] = len(self.bench.events[turn])

    def release(self, owner: int, *, purge: bool) -> None:
        self._let_go(owner)
        self.bench.scheduler.release(OwnerId(1, owner), purge=purge)

    def truncate(self, owner: int, length: int) -> bool:
        self._let_go(owner)
        return self.bench.scheduler.truncate(OwnerId(1, owner), length)

    def hit(self, owner: OwnerId | None) -> None:
        """A fault of the backend is this owner's turn's."""
        turn = self._running(owner.serial) if owner is not None else None
        assert turn is not None
        self.fates[turn] = Fate.HIT

    def leave(self) -> list[Asked]:
        """The engine is closed. Returns what the next one may know."""
        for turn, fate in self.fates.items():
            if fate in (Fate.REPLIES, Fate.HIT) and self._terminal(turn) is None:
                self.fates[turn] = Fate.LEFT
        return self.known + [self.asked[turn] for turn, event in self._history() if isinstance(event, Placed)]

    def step(self, n: int = 1) -> None:
        """So many steps of the bench; what was idle before one is within the budget after it."""
        for _ in range(n):
            self._step()

    def _step(self) -> None:
        pool = self.bench.scheduler.pool
        last = max((chain.used_at for chain in pool), default=0)
        running = [chain for chain in pool if chain.running]
        self.bench.step()
        # What a running chain shared counts as idle once it is dropped, and the budget is held with the next step.
        if all(map(pool.holds, running)):
            self._check_budget([c for c in pool if not c.running and c.used_at <= last])

    def run(self) -> None:
        """Step to the end of everything that was asked; then all that is in the pool is idle."""
        self.bench.compile()
        while self.bench.scheduler.has_work or self.bench.scheduler.rests_in_s is not None:
            self.step()
        self.bench.step()
        assert self.bench.scheduler.cache.leaver.busy is False
        self._check_budget(list(self.bench.scheduler.pool))

    def check_accounts(self) -> None:
        """Every cell and every sequence is somewhere."""
        self.bench.check_accounts()
        pool, info = self.bench.scheduler.pool, self.bench.backend.info
        assert pool.free_sequences + len(pool) == info.n_seq_max

    def check(self) -> None:
        """Every turn so far has said what it says alone, in that order, and found no more than its domain has."""
        for turn in self.asked:
            self._check_turn(turn)
        known = list(self.known)
        for turn, event in self._history():
            if isinstance(event, Placed):
                self._check_placed(event, self.asked[turn], known)
                known.append(self.asked[turn])

    def check_end(self) -> None:
        """`check`, after everything has come to its end; and then all cells, sequences and buffers come back."""
        self.check()
        for turn, fate in self.fates.items():
            terminals = [e for e in self.bench.events[turn] if isinstance(e, Ended | TurnFailed)]
            assert len(terminals) == (fate not in (Fate.CANCELLED, Fate.LEFT)), (turn, fate)
        pool, ram = self.bench.scheduler.pool, self.bench.scheduler.cache.ram
        pool.clear()
        assert self.bench.backend.n_used == pool.table.n_used == len(pool) == 0
        self.check_accounts()
        self.bench.scheduler.close(60.0)
        ram.clear()
        assert not ram.limit_bytes or ram.lend(ram.limit_bytes) is not None, "a buffer did not come back"

    def _let_go(self, owner: int) -> None:
        turn = self._running(owner)
        if turn is not None:
            self.fates[turn] = Fate.LET_GO

    def _running(self, owner: int) -> int | None:
        for turn, asked in self.asked.items():
            live = self.fates[turn] in (Fate.REPLIES, Fate.HIT) and self._terminal(turn) is None
            if asked.owner == owner and live:
                return turn
        return None

    def _terminal(self, turn: int) -> Ended | TurnFailed | None:
        events = self.bench.events[turn]
        return events[-1] if events and isinstance(events[-1], Ended | TurnFailed) else None

    def _history(self) -> Iterator[tuple[int, TurnEvent]]:
        """Every event in the order of their arrival."""
        seen: Counter[int] = Counter()
        for turn in self.bench.order:
            yield turn, self.bench.events[turn][seen[turn]]
            seen[turn] += 1

    def _check_turn(self, turn: int) -> None:
        events, fate = self.bench.events[turn], self.fates[turn]
        if fate is Fate.TOO_LONG:
            assert [type(e) for e in events] in ([], [TurnFailed])
        elif events:  # else it may be one that is too long, and was cancelled before it was told
            self._check_reply(turn, self.asked[turn].answer)
        terminal = self._terminal(turn)
        if isinstance(terminal, TurnFailed):
            assert _is_due(fate, terminal), (turn, fate, terminal)
        if fate is Fate.CANCELLED:
            assert len(events) == self.heard[turn]

    def _check_reply(self, turn: int, answer: Answer) -> None:
        events = self.bench.events[turn]
        assert [type(e) for e in events[:1]] in ([], [Placed], [TurnFailed])
        assert all(isinstance(e, Chunk) for e in events[1:-1])
        assert answer.text.startswith(self.bench.text(turn))
        if isinstance(self._terminal(turn), Ended):
            assert self.fates[turn] in (Fate.REPLIES, Fate.HIT)
            assert answer_of(self.bench, turn) == answer

    def _check_placed(self, placed: Placed, asked: Asked, known: list[Asked]) -> None:
        cached = placed.cached_tokens
        assert cached == placed.hot_tokens + placed.ram_tokens + placed.disk_tokens < placed.prompt_tokens
        prefix = asked.prompt[:cached]
        assert not cached or any(
            other.domain == asked.domain and (other.prompt + other.answer.text).startswith(prefix) for other in known
        ), f"{cached} tokens that nobody has computed in this domain"

    def _check_budget(self, idle: list[Chain]) -> None:
        """These chains hold no more cells that no other has than idle ones may."""
        if self.bench.hot_tokens is None or sum(map(len, idle)) <= self.bench.hot_tokens:
            return
        pool = self.bench.scheduler.pool
        held = np.zeros(pool.table.n_cells, dtype=np.bool_)
        for chain in idle:
            held[chain.cells.view] = True
        for chain in pool:
            if chain not in idle:
                held[chain.cells.view] = False
        assert np.count_nonzero(held) <= self.bench.hot_tokens


_DUE = {
    Fate.TOO_LONG: (FailureKind.OVERFLOW, ("",)),
    Fate.BUSY: (FailureKind.FAULT, ("already runs a turn",)),
    Fate.LET_GO: (FailureKind.FAULT, ("were released while", "were truncated while")),
    Fate.HIT: (FailureKind.FAULT, ("The engine failed while it computed", "too few cells for this turn alone")),
}
"""How turns fail: the kind, and what the message says."""


def _is_due(fate: Fate, failed: TurnFailed) -> bool:
    kind, words = _DUE.get(fate, (None, ()))
    return failed.kind is kind and any(w in failed.message for w in words)
