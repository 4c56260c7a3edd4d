"""Whatever happens around a turn, its output is that of the turn alone: also when its cells went through memory and
disk, through a restart, or were lost on the way.

The simulated backend's tokens are a hash of the cells a sequence sees, so one wrong cell anywhere breaks the equality.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from enum import Enum, auto
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from unit.engine.harness import Bench, FakeTime, bench, held
from unit.engine.test_scheduler_property import DOMAINS, PROMPTS, alone, sampling
from warmlane.engine.backends.base import Allocate, ByteArray, CacheFull, Decoded, DecodeFailed, Slice
from warmlane.engine.backends.simulated import SimulatedBackend, SimulatedSettings
from warmlane.engine.messages import TurnFailed
from warmlane.engine.protocol import Ended, OwnerId, Placed
from warmlane.engine.tiers.disk import DiskTier
from warmlane.engine.tiers.writer import Job

N_CELLS = 200
DISK_BYTES = 6000
OWNERS = st.integers(0, 5)


class Kind(Enum):
    """What a model can go back to: anywhere, within its window, or nowhere."""

    FULL = auto()
    WINDOWED = auto()
    RECURRENT = auto()


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


class FlakyBackend(SimulatedBackend):
    """Fails the next decode, snapshot or restore when told to."""

    def __init__(self, kind: Kind, time: FakeTime) -> None:
        super().__init__(
            SimulatedSettings(
                n_cells=N_CELLS,
                n_seq_max=5,
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

    def decode(self, slices: Sequence[Slice]) -> Decoded:
        failing, self.failing = self.failing, None
        if failing == "decode":
            first = slices[0]
            super().decode([Slice(first.seq, first.position, first.tokens, wants_logits=False)])
            raise DecodeFailed("flaky")
        if failing == "full":
            raise CacheFull
        return super().decode(slices)

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


class Engine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory(prefix="warmlane-test-")
        self.writer = LateWriter()
        self.asked: dict[int, tuple[str, bytes, int, int | None]] = {}
        self.bench: Bench | None = None

    @initialize(
        capacity=st.integers(1, 4),
        hot=st.sampled_from((0, 30, 150, 150, None)),
        ram=st.sampled_from((3000, 1 << 20, 400, 0)),
        with_disk=st.sampled_from((True, True, False)),
        kind=st.sampled_from((Kind.FULL, *Kind)),
        least_shared=st.sampled_from((1, 8, 64)),
    )
    def begin(self, capacity: int, hot: int | None, ram: int, with_disk: bool, kind: Kind, least_shared: int) -> None:
        self.options = (capacity, hot, ram, with_disk, kind, least_shared)
        self.start()

    def start(self) -> None:
        capacity, hot, ram, with_disk, kind, least_shared = self.options
        time = FakeTime()
        self.backend = FlakyBackend(kind, time)
        self.bench = bench(
            backend=self.backend,
            time=time,
            capacity=capacity,
            hot_tokens=hot,
            ram_bytes=ram,
            least_shared=least_shared,
            slice_alone=24,
            slice_beside_decode=8,
            disk=self.open_disk if with_disk else None,
        )
        self.asked = {}

    def open_disk(self, backend: SimulatedBackend, time: FakeTime) -> DiskTier:
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
    def b(self) -> Bench:
        assert self.bench is not None
        return self.bench

    @rule(
        prompt=st.sampled_from(PROMPTS),
        owner=OWNERS,
        domain=st.sampled_from(DOMAINS),
        max_tokens=st.integers(0, 40),
        seed=st.sampled_from((None, 1)),
    )
    def submit(self, prompt: str, owner: int, domain: bytes, max_tokens: int, seed: int | None) -> None:
        turn = self.b.submit(
            prompt,
            owner=owner,
            domain=domain,
            max_tokens=max_tokens,
            sampling=sampling(seed),
            pin_tokens=len(prompt) // 2 if owner < 2 else 0,
        )
        self.asked[turn] = (prompt, domain, max_tokens, seed)

    @rule(owner=OWNERS, seed=st.sampled_from((None, 1)), more=st.sampled_from((" and?", " so the quick one")))
    def follow_up(self, owner: int, seed: int | None, more: str) -> None:
        """A second turn of the conversation this owner's cells hold."""
        chain = self.b.scheduler.pool.of(OwnerId(1, owner))
        if chain is not None and not chain.running and 0 < len(chain) < 100:
            prompt = bytes(chain.tokens.view.tolist()).decode() + more
            self.submit(prompt, owner, chain.domain, 12, seed)

    @rule(
        prompts=st.lists(st.sampled_from(PROMPTS), min_size=1, max_size=4),
        domain=st.sampled_from(DOMAINS),
        max_tokens=st.integers(1, 30),
    )
    def converse(self, prompts: list[str], domain: bytes, max_tokens: int) -> None:
        for owner, prompt in enumerate(prompts):
            self.submit(prompt, owner, domain, max_tokens, None)
        self.b.run()

    @rule(n=st.integers(1, 15))
    def step(self, n: int) -> None:
        for _ in range(n):
            self.b.step()

    @rule(what=st.sampled_from(("cancel", "release", "purge", "truncate")), owner=OWNERS, n=st.integers(0, 60))
    def let_go(self, what: str, owner: int, n: int) -> None:
        if what == "cancel":
            self.b.scheduler.cancel(n % (self.b.n_turns + 1))
        elif what == "truncate":
            info = self.backend.info
            assert self.b.scheduler.truncate(OwnerId(1, owner), n) or not info.can_truncate or info.attention_window
        else:
            self.b.scheduler.release(OwnerId(1, owner), purge=what == "purge")

    @rule()
    def evict(self) -> None:
        self.b.scheduler.pool.evict_one()

    @rule(seconds=st.sampled_from((0.5, 40.0)), jobs=st.integers(0, 4))
    def rest(self, seconds: float, jobs: int) -> None:
        self.b.time.sleep(seconds)
        self.b.scheduler.cache.tick()
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
        self.check_turns()
        before = list(self.asked.values())[-3:]
        if how == "crash":
            self.writer.jobs.clear()
            disk = self.b.scheduler.cache.disk
            if disk is not None:
                disk.close(0.0)
        else:
            self.b.scheduler.close(60.0 if how == "clean" else 0.0)
        if damage:
            self.break_a_file("flip", data)
        self.start()
        for owner, (prompt, domain, max_tokens, seed) in enumerate(before):
            self.submit(prompt, owner, domain, max_tokens, seed)

    @invariant()
    def accounts_and_budgets_hold(self) -> None:
        if self.bench is None:
            return
        self.b.check_accounts()
        cache = self.b.scheduler.cache
        assert cache.ram.allocated_bytes <= cache.ram.limit_bytes
        failing, self.backend.failing = self.backend.failing, None
        for chain in cache.pool:
            assert held(self.backend, chain.seq) == dict(enumerate(chain.tokens.view.tolist()))
        self.backend.failing = failing
        if cache.disk is not None:
            assert cache.disk.used_bytes <= DISK_BYTES

    def check_turns(self) -> None:
        for turn, (prompt, _, max_tokens, seed) in self.asked.items():
            events = self.b.events[turn]
            expected = alone(prompt, max_tokens, seed)
            if events and isinstance(events[-1], Ended):
                assert self.b.text(turn) == expected
            else:
                assert expected.startswith(self.b.text(turn))
            assert sum(isinstance(e, Ended | TurnFailed) for e in events) <= 1
            placed = [e for e in events if isinstance(e, Placed)]
            assert len(placed) <= 1
            for p in placed:
                assert p.cached_tokens == p.hot_tokens + p.ram_tokens + p.disk_tokens < p.prompt_tokens

    def teardown(self) -> None:
        if self.bench is not None:
            self.b.run()
            self.check_turns()
            self.accounts_and_budgets_hold()
            for owner in range(6):
                self.b.scheduler.release(OwnerId(1, owner), purge=True)
            while self.b.scheduler.pool.evict_one():
                pass
            assert self.backend.n_used == self.b.scheduler.pool.table.n_used == len(self.b.scheduler.pool) == 0
            self.b.scheduler.close(60.0)
        self.directory.cleanup()


TestEngine = Engine.TestCase
TestEngine.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
