"""A scheduler on the simulated backend, driven step by step, with time that only a sleeping backend moves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np

from warmlane.engine.backends.apart import SEQUENCES_APART, TwoContexts
from warmlane.engine.backends.base import Backend, ByteArray
from warmlane.engine.backends.bytes_vocab import ByteTokenizer
from warmlane.engine.backends.simulated import SimulatedBackend, SimulatedSettings
from warmlane.engine.grammar import Constraint, GrammarError, Grammars
from warmlane.engine.messages import TurnEvent, TurnFailed
from warmlane.engine.pace import Pace
from warmlane.engine.prefix_cache import CacheSettings
from warmlane.engine.protocol import (
    Chunk,
    Ended,
    GenerateRequest,
    OwnerId,
    PinnedPrefix,
    Placed,
    SamplingParams,
    ThoughtLimit,
)
from warmlane.engine.scheduler import Scheduler
from warmlane.engine.tiers.disk import DiskTier

GREEDY = SamplingParams(temperature=0.0)
DOMAIN = b"domain-of-tenant"
GRAMMARS = Grammars(ByteTokenizer())


class Crashed(Exception):
    """The CRASH script, caught."""


@dataclass(slots=True)
class FakeTime:
    now_s: float = 0.0

    def now(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def raise_crash() -> None:
    raise Crashed


def chat(*messages: tuple[str, str], reply: bool = True) -> str:
    """The ChatML text of (role, content) pairs, ready for the assistant's reply."""
    text = "".join(f"<|im_start|>{role}\n{content}<|im_end|>\n" for role, content in messages)
    return text + ("<|im_start|>assistant\n" if reply else "")


def saved(backend: Backend, seq: int, start: int = 0) -> ByteArray:
    """A snapshot in memory of its own."""
    data = backend.snapshot(seq, start, lambda n: np.empty(n, dtype=np.uint8))
    assert data is not None
    return data


def held(backend: Backend, seq: int) -> dict[int, int]:
    """Tokens by position that a sequence of the simulated backend sees."""
    cells = msgspec.msgpack.decode(saved(backend, seq).tobytes())
    assert len(set(cells["positions"])) == len(cells["positions"])
    return dict(zip(cells["positions"], cells["tokens"], strict=True))


class SimulatedPair(TwoContexts):
    """Of simulated backends; counts what goes apart and what comes back."""

    def __init__(self, here: SimulatedBackend, apart: SimulatedBackend) -> None:
        super().__init__(here, apart)
        self.here, self.apart = here, apart
        self.went = self.came_back = 0

    @property
    def n_used(self) -> int:
        """Cells that belong to any sequence, without the copies that were made of some."""
        return self.here.n_used + self.apart.n_used - sum(apart.base for apart in self._apart.values())

    def set_apart(self, seq: int, length: int) -> bool:
        before = self.n_apart
        done = super().set_apart(seq, length)
        self.went += self.n_apart - before
        return done

    def share(self, src: int, dst: int, length: int) -> bool:
        before = self.n_apart
        done = super().share(src, dst, length)
        self.came_back += before - self.n_apart
        return done


@dataclass(slots=True)
class Bench:
    """A scheduler and everything its turns said."""

    backend: SimulatedBackend | SimulatedPair
    scheduler: Scheduler
    time: FakeTime
    grammars: Grammars
    hot_tokens: int | None = None
    events: dict[int, list[TurnEvent]] = field(default_factory=lambda: defaultdict(list))
    order: list[int] = field(default_factory=list)
    n_turns: int = 0
    uncompiled: dict[int, GenerateRequest] = field(default_factory=dict)

    def submit(
        self,
        prompt: str | tuple[int, ...],
        *,
        owner: int | None = None,
        domain: bytes = DOMAIN,
        max_tokens: int = 4096,
        stop: tuple[str, ...] = (),
        sampling: SamplingParams = GREEDY,
        grammar: str | None = None,
        top_logprobs: int | None = None,
        special_text: bool = False,
        compile_now: bool = True,
        pin_tokens: int = 0,
        pin_s: float = 300.0,
        spare: bool = False,
        thought: ThoughtLimit | None = None,
    ) -> int:
        turn = self.n_turns
        self.n_turns += 1
        if isinstance(prompt, str):
            prompt = tuple(self.backend.tokenizer.tokenize(prompt, special=True, bos=True))
        request = GenerateRequest(
            owner=OwnerId(1, turn if owner is None else owner),
            domain=domain,
            prompt=prompt,
            sampling=sampling,
            max_tokens=max_tokens,
            stop=stop,
            grammar=grammar,
            top_logprobs=top_logprobs,
            special_text=special_text,
            pins=(PinnedPrefix(pin_tokens, pin_s),) if pin_tokens else (),
            spare=spare,
            thought=thought,
        )
        self.scheduler.submit(turn, request)
        if grammar is not None:
            self.uncompiled[turn] = request
        if compile_now:
            self.compile(turn)
        return turn

    def compile(self, *turns: int) -> None:
        """What the threads beside the decode thread do: compile the grammars that wait for it, of all turns if none is
        named."""
        for turn in turns or tuple(self.uncompiled):
            request = self.uncompiled.pop(turn, None)
            if request is None or request.grammar is None:
                continue
            outcome: Constraint | GrammarError
            try:
                outcome = self.grammars.compile(request.grammar, special_text=request.special_text)
            except GrammarError as error:
                outcome = error
            self.scheduler.compiled(turn, outcome)

    def step(self) -> None:
        for output in self.scheduler.step():
            self.events[output.turn].append(output.event)
            self.order.append(output.turn)

    def run(self, *, limit: int = 100_000) -> None:
        """Step until nothing is left to do."""
        for _ in range(limit):
            if not self.scheduler.has_work:
                return
            self.step()
        raise AssertionError("the scheduler does not come to an end")

    def ask(self, prompt: str | tuple[int, ...], **options: object) -> int:
        turn = self.submit(prompt, **options)  # type: ignore[arg-type]
        self.run()
        return turn

    def text(self, turn: int) -> str:
        return "".join(e.text for e in self.events[turn] if isinstance(e, Chunk))

    def placed(self, turn: int) -> Placed:
        return next(e for e in self.events[turn] if isinstance(e, Placed))

    def ended(self, turn: int) -> Ended:
        last = self.events[turn][-1]
        assert isinstance(last, Ended), last
        return last

    def failed(self, turn: int) -> TurnFailed:
        last = self.events[turn][-1]
        assert isinstance(last, TurnFailed), last
        return last

    def tokens(self, prompt: str) -> np.ndarray:
        return np.array(self.backend.tokenizer.tokenize(prompt, special=True, bos=True), dtype=np.int32)

    def check_accounts(self) -> None:
        """What the pool counts is what the backend holds."""
        assert self.scheduler.pool.table.n_used == self.backend.n_used
        assert sum(self.scheduler.pool.cells_by_state()) == self.backend.n_used


def bench(
    *,
    n_cells: int = 4096,
    n_seq_max: int = 16,
    n_batch: int = 512,
    capacity: int = 4,
    flat: bool = False,
    hash_mode: bool = False,
    can_truncate: bool = True,
    attention_window: int = 0,
    slice_alone: int = 512,
    slice_beside_decode: int = 128,
    hot_tokens: int | None = None,
    ram_bytes: int = 0,
    least_shared: int = 64,
    pace: Pace | None = None,
    disk: Callable[[Backend, FakeTime], DiskTier] | None = None,
    time: FakeTime | None = None,
    backend: SimulatedBackend | SimulatedPair | None = None,
    apart_tokens: int | None = None,
    rest_s: float = 0.0,
) -> Bench:
    """With `apart_tokens` gaps are bounded, and prompts of so many tokens are set apart."""
    time = time or FakeTime()
    if backend is None:
        settings = SimulatedSettings(
            n_cells=n_cells,
            n_seq_max=n_seq_max,
            n_batch=n_batch,
            hash_mode=hash_mode,
            can_truncate=can_truncate,
            attention_window=attention_window,
        )
        backend = SimulatedBackend(settings, now=time.now, sleep=time.sleep, crash=raise_crash)
        if apart_tokens is not None:
            there = replace(settings, n_seq_max=SEQUENCES_APART)
            backend = SimulatedPair(backend, SimulatedBackend(there, now=time.now, sleep=time.sleep, crash=raise_crash))
    if pace is None:
        pace = Pace(
            n_batch=backend.info.n_batch,
            slice_alone=slice_alone,
            slice_beside_decode=slice_beside_decode,
            max_gap_ms=None if apart_tokens is None else 1.0,
        )
    scheduler = Scheduler(
        backend,
        capacity=capacity,
        flat=flat,
        now=time.now,
        entropy=lambda: 7,
        pace=pace,
        cache=CacheSettings(
            hot_tokens=hot_tokens,
            ram_bytes=ram_bytes,
            least_shared=least_shared,
            rest_s=rest_s,
            apart_tokens=512 if apart_tokens is None else apart_tokens,
        ),
        disk=disk(backend, time) if disk else None,
    )
    return Bench(backend, scheduler, time, GRAMMARS, hot_tokens)
