"""Whatever happens around a turn, its output is that of the turn alone: also when its cells went through memory and
disk, through a restart, or were lost on the way.

The simulated backend's tokens are a hash of the cells a sequence sees, so one wrong cell anywhere breaks the equality.
"""

from __future__ import annotations

import resource
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import partial
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from unit.engine.harness import Bench, FakeTime, SimulatedPair, bench, held
from unit.engine.ledger import DOMAINS, GRAMMARS, N_CELLS, PROMPTS, Asked, Ledger
from warmlane.engine.backends.apart import SEQUENCES_APART
from warmlane.engine.backends.base import Allocate, Backend, ByteArray, CacheFull, Decoded, DecodeFailed, Slice
from warmlane.engine.backends.simulated import SimulatedBackend, SimulatedSettings
from warmlane.engine.protocol import OwnerId
from warmlane.engine.tiers.disk import DiskTier
from warmlane.engine.tiers.writer import Job

N_EXAMPLES = 75
DISK_BYTES = 6000
OWNERS = st.integers(0, 11)
REPLIES = st.sampled_from((60, 60, 20, 1, 0))
STREAM = "0123456789"
MORE = st.sampled_from((" and?", " so the quick one"))


class Kind(Enum):
    """What a model can go back to: anywhere, within its window, or nowhere."""

    FULL = auto()
    WINDOWED = auto()
    RECURRENT = auto()


@dataclass(frozen=True, slots=True)
class Setup:
    """What is tried in equal parts. Budgets are drawn from `hot` (cells) and `ram` (bytes). Prompts of `apart_tokens`
    go apart."""

    kind: Kind
    with_disk: bool
    hot: tuple[int | None, ...]
    ram: tuple[int, ...]
    apart_tokens: int | None = None


SETUPS = (
    Setup(Kind.FULL, True, (80, 110), (1 << 20,)),
    Setup(Kind.FULL, True, (30, 0, None), (1 << 20, 3000, 400, 0)),
    Setup(Kind.FULL, False, (80, 30, 0, None), (1 << 20, 3000, 0)),
    Setup(Kind.FULL, True, (80, 30, 0, None), (1 << 20, 3000, 0), apart_tokens=8),
    Setup(Kind.WINDOWED, True, (80, 30, 0, None), (1 << 20, 3000)),
    Setup(Kind.RECURRENT, True, (80, 30, 0, None), (1 << 20, 3000)),
)


class LateWriter:
    """A writer whose jobs wait until somebody has them done."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []

    def submit(self, job: Job) -> None:
        self.jobs.append(job)

    def work(self, n: int) -> None:
        for job in self.jobs[:n]:
            job()
        del self.jobs[:n]

    def drain(self, timeout_s: float) -> None:
        self.work(len(self.jobs) if timeout_s > 0 else 0)

    def close(self, timeout_s: float) -> bool:
        self.work(len(self.jobs) if timeout_s > 0 else 0)
        return not self.jobs


@contextmanager
def full_disk() -> Iterator[None]:
    """No file grows beyond a few bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


FailingAt = Callable[[str, Sequence[Slice]], None]


class FlakyBackend(SimulatedBackend):
    """Fails the next decode, snapshot or restore when told to, and says `failing_at` which slices a decode does."""

    def __init__(
        self, kind: Kind, time: FakeTime, failing_at: FailingAt | None, n_seq_max: int = 5, *, n_cells: int = N_CELLS
    ) -> None:
        super().__init__(
            SimulatedSettings(
                n_cells=n_cells,
                n_seq_max=n_seq_max,
                n_batch=32,
                hash_mode=True,
                can_truncate=kind is not Kind.RECURRENT,
                attention_window=10 if kind is Kind.WINDOWED else 0,
                snapshot_s_per_token=0.002,  # so that a chain leaves bit by bit while others decode
            ),
            now=time.now,
            sleep=time.sleep,
        )
        self.failing: str | None = None
        self._failing_at = failing_at

    def decode(self, slices: Sequence[Slice]) -> Decoded:
        if self.failing not in ("decode", "full"):
            return super().decode(slices)
        failing, self.failing = self.failing, None
        if self._failing_at is not None:
            self._failing_at(failing, slices)
        if failing == "decode":
            first = slices[0]
            super().decode([Slice(first.seq, first.position, first.tokens, wants_logits=False)])
            raise DecodeFailed("flaky")
        raise CacheFull

    def snapshot(self, seq: int, start: int, allocate: Allocate, *, end: int | None = None) -> ByteArray | None:
        if self.failing == "snapshot":
            self.failing = None
            return None
        return super().snapshot(seq, start, allocate, end=end)

    def restore(self, seq: int, data: ByteArray, begin: int, end: int) -> bool:
        if self.failing == "restore":
            self.failing = None
            return False
        return super().restore(seq, data, begin, end)


class FlakyPair(SimulatedPair):
    """Two of these: the one fails after the other has succeeded, where both have something to decode."""

    def __init__(self, time: FakeTime, failing_at: FailingAt) -> None:
        here = FlakyBackend(Kind.FULL, time, None)
        # Not all that may have to be there at once.
        self.halves = [here, FlakyBackend(Kind.FULL, time, None, SEQUENCES_APART, n_cells=80)]
        super().__init__(*self.halves)
        self._failing_decode: str | None = None
        self._failing_at = failing_at

    @property
    def failing(self) -> str | None:
        return self._failing_decode or self.halves[0].failing or self.halves[1].failing

    @failing.setter
    def failing(self, what: str | None) -> None:
        in_decode = what in ("decode", "full")
        self._failing_decode = what if in_decode else None
        self.halves[0].failing = self.halves[1].failing = None if in_decode else what

    def decode(self, slices: Sequence[Slice]) -> Decoded:
        failing, self._failing_decode = self._failing_decode, None
        if failing is None:
            return super().decode(slices)
        self._failing_at(failing, slices)
        self.halves[all(s.seq in self._apart for s in slices)].failing = failing
        return super().decode(slices)


class Engine(RuleBasedStateMachine):
    """One directory, and one engine after the other on it. What happens in them is added to the `tally`."""

    def __init__(self, setup: Setup, tally: Counter[str]) -> None:
        super().__init__()
        self.setup, self.tally = setup, tally
        self.directory = tempfile.TemporaryDirectory(prefix="warmlane-test-")
        self.writer = LateWriter()
        self.known: list[Asked] = []
        self.running: Ledger | None = None

    @initialize(capacity=st.sampled_from((4, 3, 2, 1)), least_shared=st.sampled_from((1, 8, 64)), data=st.data())
    def begin(self, capacity: int, least_shared: int, data: st.DataObject) -> None:
        hot, ram = data.draw(st.sampled_from(self.setup.hot)), data.draw(st.sampled_from(self.setup.ram))
        self.options = (capacity, hot, ram, least_shared)
        self.start()

    def start(self) -> None:
        capacity, hot, ram, least_shared = self.options
        time = FakeTime()
        apart_tokens = self.setup.apart_tokens
        self.backend: FlakyBackend | FlakyPair
        if apart_tokens is None:
            self.backend = FlakyBackend(self.setup.kind, time, self.failing_at)
        else:
            self.backend = FlakyPair(time, self.failing_at)
        b = bench(
            backend=self.backend,
            time=time,
            capacity=capacity,
            hot_tokens=hot,
            ram_bytes=ram,
            least_shared=least_shared,
            slice_alone=24,
            slice_beside_decode=8,
            apart_tokens=apart_tokens,
            disk=self.open_disk if self.setup.with_disk else None,
        )
        self.running = Ledger(b, known=self.known)

    def open_disk(self, backend: Backend, time: FakeTime) -> DiskTier:
        self.writer = LateWriter()
        return DiskTier(
            Path(self.directory.name),
            limit_bytes=DISK_BYTES,
            key=b"k" * 32,
            whole=not backend.info.can_truncate,
            window=backend.info.attention_window,
            writer=self.writer,
            now=time.now,
        )

    @property
    def ledger(self) -> Ledger:
        assert self.running is not None
        return self.running

    @property
    def b(self) -> Bench:
        return self.ledger.bench

    def failing_at(self, what: str, slices: Sequence[Slice]) -> None:
        """A batch that fails hits the only turn in it, or one that cannot be cut back to where it was; a cache that
        is full, the only one that holds cells."""
        chains = list(self.b.scheduler.pool)
        if what == "full":
            hit = [c for c in chains if len(chains) == 1]
        else:
            cuts = len(slices) > 1 and self.setup.kind is Kind.FULL
            hit = [c for c in chains if c.seq == slices[0].seq and not cuts]
        for chain in hit:
            self.ledger.hit(chain.owner)

    def submit(self, asked: Asked, *, compile_now: bool = True) -> None:
        self.ledger.ask(asked, compile_now=compile_now, pin_tokens=len(asked.prompt) // 2 if asked.owner < 2 else 0)

    @rule(
        prompt=st.sampled_from(PROMPTS),
        owner=OWNERS,
        domain=st.sampled_from(DOMAINS),
        max_tokens=REPLIES,
        seed=st.sampled_from((None, 1)),
        grammar=st.sampled_from((None, None, *GRAMMARS)),
        spare=st.booleans(),
        compile_now=st.booleans(),
    )
    def ask(
        self,
        prompt: str,
        owner: int,
        domain: bytes,
        max_tokens: int,
        seed: int | None,
        grammar: str | None,
        spare: bool,
        compile_now: bool,
    ) -> None:
        asked = Asked(
            prompt=prompt,
            owner=owner,
            domain=domain,
            max_tokens=max_tokens,
            seed=seed,
            grammar=grammar,
            spare=spare,
        )
        self.submit(asked, compile_now=compile_now)

    @rule(owner=OWNERS, seed=st.sampled_from((None, 1)), more=MORE)
    def follow_up(self, owner: int, seed: int | None, more: str) -> None:
        """A second turn of the conversation this owner's cells hold."""
        chain = self.b.scheduler.pool.of(OwnerId(1, owner))
        if chain is not None and not chain.running and 0 < len(chain) < 100:
            prompt = bytes(chain.tokens.view.tolist()).decode() + more
            self.submit(Asked(prompt=prompt, owner=owner, domain=chain.domain, seed=seed))

    @rule(
        prompts=st.lists(st.sampled_from(PROMPTS), min_size=2, max_size=4),
        first=st.sampled_from((0, 4, 8)),
        domain=st.sampled_from(DOMAINS),
        spare=st.booleans(),
    )
    def converse(self, prompts: list[str], first: int, domain: bytes, spare: bool) -> None:
        """To the end. Every other reply is short: its cells leave bit by bit while others are in the making."""
        for place, prompt in enumerate(prompts):
            n = 20 if place % 2 else 60
            self.submit(Asked(prompt=prompt, owner=first + place, domain=domain, max_tokens=n, spare=spare))
        self.ledger.run()

    @rule(prompt=st.sampled_from(PROMPTS), more=MORE, first=st.sampled_from((0, 4, 8)), domain=st.sampled_from(DOMAINS))
    def fan_out(self, prompt: str, more: str, first: int, domain: bytes) -> None:
        """Beside a stream, a prompt and one that shares it while its reply is in the making."""
        self.submit(Asked(prompt=STREAM, owner=first, domain=domain, max_tokens=60))
        self.ledger.step(3)
        self.submit(Asked(prompt=prompt, owner=first + 1, domain=domain, max_tokens=20))
        self.ledger.step(8)
        self.submit(Asked(prompt=prompt + more, owner=first + 2, domain=domain, max_tokens=20))
        self.ledger.run()

    @rule(n=st.integers(1, 30))
    def step(self, n: int) -> None:
        self.ledger.step(n)

    @rule()
    def compile(self) -> None:
        self.b.compile()

    @rule(what=st.sampled_from(("cancel", "release", "purge", "truncate")), owner=OWNERS, n=st.integers(0, 60))
    def let_go(self, what: str, owner: int, n: int) -> None:
        if what == "cancel":
            self.ledger.cancel(n % (self.b.n_turns + 1))
        elif what == "truncate":
            info = self.backend.info
            assert self.ledger.truncate(owner, n) or not info.can_truncate or info.attention_window
        else:
            self.ledger.release(owner, purge=what == "purge")

    @rule()
    def evict(self) -> None:
        self.b.scheduler.pool.evict_one()

    @rule(seconds=st.sampled_from((0.5, 40.0)), jobs=st.sampled_from((4, 2, 1, 0)), full=st.booleans())
    def rest(self, seconds: float, jobs: int, full: bool) -> None:
        self.b.time.sleep(seconds)
        self.b.scheduler.cache.tick()
        if full:
            with full_disk():
                self.writer.work(jobs)
        else:
            self.writer.work(jobs)
        self.b.scheduler.cache.tick()

    @rule(what=st.sampled_from(("decode", "full", "snapshot", "restore", "flip", "cut")), data=st.data())
    def break_something(self, what: str, data: st.DataObject) -> None:
        if what not in ("flip", "cut"):
            self.backend.failing = what
        else:
            self.break_a_file(what, data)

    def break_a_file(self, what: str, data: st.DataObject) -> None:
        files = sorted(f for f in Path(self.directory.name).glob("*.kv") if f.stat().st_size)
        if files:
            path = data.draw(st.sampled_from(files))
            content = bytearray(path.read_bytes())
            at = data.draw(st.integers(0, len(content) - 1))
            content[at] ^= 0x10
            path.write_bytes(content[:at] if what == "cut" else content)

    @rule(how=st.sampled_from(("quick", "clean", "clean", "crash")), damage=st.booleans(), data=st.data())
    def restart(self, how: str, damage: bool, data: st.DataObject) -> None:
        """And ask the same again. After a crash what was not written is gone; the kernel gives the claim up."""
        before = list(self.ledger.asked.values())[-3:]
        self.known = self.ledger.leave()
        self.ledger.check()
        if how == "crash":
            self.writer.jobs.clear()
            disk = self.b.scheduler.cache.disk
            if disk is not None:
                disk.close(0.0)
        else:
            self.b.scheduler.close(60.0 if how == "clean" else 0.0)
        self.count()
        self.tally["restarts"] += 1
        if damage:
            self.break_a_file("flip", data)
        self.start()
        for owner, asked in enumerate(before):
            self.submit(replace(asked, owner=owner))

    @invariant()
    def accounts_and_budgets_hold(self) -> None:
        if self.running is None:
            return
        self.ledger.check_accounts()
        cache = self.b.scheduler.cache
        assert cache.ram.allocated_bytes <= cache.ram.limit_bytes
        failing, self.backend.failing = self.backend.failing, None
        for chain in cache.pool:
            assert held(self.backend, chain.seq) == dict(enumerate(chain.tokens.view.tolist()))
        self.backend.failing = failing
        if cache.disk is not None:
            assert cache.disk.used_bytes <= DISK_BYTES

    def count(self) -> None:
        """Add up what has happened in this engine."""
        stats = self.b.scheduler.stats()
        self.tally.update(
            preemptions=stats.preemptions,
            spills=stats.spills,
            left_bit_by_bit=self.b.scheduler.cache.leaver.spills,
            restores=stats.restores,
            restore_failures=stats.restore_failures,
            disk_tokens=stats.disk_tokens,
            disk_writes=stats.disk_writes,
            disk_write_errors=stats.disk_write_errors,
            disk_damaged=stats.disk_damaged,
            ram_evictions=stats.ram_evictions,
        )
        self.tally.update(fate.name for fate in self.ledger.fates.values())
        if isinstance(self.backend, FlakyPair):
            self.tally.update(apart=self.backend.went, came_back=self.backend.came_back)

    def teardown(self) -> None:
        if self.running is not None:
            self.ledger.run()
            self.count()
            self.accounts_and_budgets_hold()
            self.ledger.check_end()
        self.directory.cleanup()


def engines_come_and_go(n_examples: int) -> Counter[str]:
    """So many directories. Returns what happened in all of them, and how often."""
    tally: Counter[str] = Counter()
    share = settings(max_examples=n_examples // len(SETUPS), stateful_step_count=40, deadline=None)
    for setup in SETUPS:
        run_state_machine_as_test(partial(Engine, setup, tally), settings=share)
    return tally


def test_every_turn_says_what_it_says_alone_whatever_tier_its_cells_were_in() -> None:
    tally = engines_come_and_go(N_EXAMPLES)
    least = {"preemptions": 0.5, "spills": 2, "restores": 1, "disk_tokens": 0.2, "REPLIES": 2}
    least |= {
        "apart": 0.05,
        "came_back": 0.01,
        "restarts": 0.2,
        "left_bit_by_bit": 0.05,
        "disk_writes": 0.2,
        "disk_write_errors": 0.01,
    }
    assert all(tally[what] >= share * N_EXAMPLES for what, share in least.items()), tally
