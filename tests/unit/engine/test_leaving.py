"""A conversation that has ended leaves the hot pool between the steps of those that go on."""

from __future__ import annotations

import numpy as np
import pytest

from unit.engine.harness import Bench, FakeTime, bench
from warmlane.engine.backends.base import Allocate, ByteArray
from warmlane.engine.backends.simulated import SimulatedBackend, SimulatedSettings
from warmlane.engine.leaving import LEAST_PIECE
from warmlane.engine.pace import SHORTEST_GAP_MS
from warmlane.engine.protocol import OwnerId

CELL_MS = 2.0
ENDED = "the quick brown fox jumps over the lazy dog and goes on and on " * 3
RUNNING = "lorem ipsum dolor sit amet"
DOMAIN = b"domain-of-tenant"


class Copying(SimulatedBackend):
    """Notes how many cells each copy took; `refuses` makes it take none."""

    copied: tuple[int, ...] = ()
    refuses = False

    def snapshot(self, seq: int, start: int, allocate: Allocate, *, end: int | None = None) -> ByteArray | None:
        if self.refuses:
            self.refuses = False
            return None
        if end is not None:
            self.copied = (*self.copied, end - start)
        return super().snapshot(seq, start, allocate, end=end)


def start(*, ram_bytes: int = 1 << 20) -> tuple[Bench, Copying]:
    """A conversation of owner 0 that has just ended beside a running one."""
    time = FakeTime()
    settings = SimulatedSettings(n_cells=2000, n_seq_max=5, hash_mode=True, snapshot_s_per_token=CELL_MS / 1e3)
    backend = Copying(settings, now=time.now, sleep=time.sleep)
    b = bench(backend=backend, time=time, hot_tokens=1000, ram_bytes=ram_bytes, least_shared=8)
    ended = b.submit(ENDED, owner=0, max_tokens=5)
    b.submit(RUNNING, owner=1, max_tokens=500)
    while not b.events[ended] or not hasattr(b.events[ended][-1], "reason"):
        b.step()
    assert not b.scheduler.cache.leaver.busy
    b.step()
    assert b.scheduler.cache.leaver.busy
    return b, backend


def leave(b: Bench) -> list[float]:
    """Step until it has left; milliseconds of each step."""
    took = []
    while b.scheduler.cache.leaver.busy:
        began = b.time.now()
        b.step()
        took.append((b.time.now() - began) * 1e3)
    return took


def test_it_leaves_bit_by_bit_and_can_be_had_again() -> None:
    b, backend = start()
    assert b.scheduler.pool.of(OwnerId(1, 0)) is not None
    took = leave(b)
    assert SHORTEST_GAP_MS < max(took) == pytest.approx(LEAST_PIECE * CELL_MS)
    assert backend.copied[0] == 1
    assert set(backend.copied[1:-1]) == {LEAST_PIECE}
    assert sum(backend.copied) == len(ENDED) + 4
    assert b.scheduler.pool.of(OwnerId(1, 0)) is None
    stats = b.scheduler.stats()
    assert (stats.spills, stats.ram_segments) == (1, 1)
    again = b.submit(ENDED + "so", owner=2, max_tokens=3)
    b.run()
    assert (b.placed(again).ram_tokens, b.placed(again).hot_tokens) == (len(ENDED), 0)


def test_prompts_wait_for_the_steps_in_which_cells_are_copied() -> None:
    b, _ = start()
    newcomer = b.submit("z" * 300, owner=2, max_tokens=1)
    n_steps = len(leave(b))
    assert n_steps > 5
    assert not b.events[newcomer]
    b.run()
    assert b.ended(newcomer)


def test_all_of_it_leaves_at_once_where_nothing_decodes() -> None:
    b, backend = start()
    b.scheduler.cancel(1)
    b.submit("z" * 300, owner=2, max_tokens=1)
    b.step()
    assert not b.scheduler.cache.leaver.busy
    assert backend.copied[-1] > LEAST_PIECE
    assert b.scheduler.stats().spills == 1


def test_it_stays_once_nobody_runs_any_more() -> None:
    b, _ = start()
    b.scheduler.cancel(1)
    b.step()
    assert not b.scheduler.cache.leaver.busy
    assert b.scheduler.pool.of(OwnerId(1, 0)) is not None
    assert b.scheduler.stats().ram_segments == 0
    again = b.ask(ENDED + "so", owner=2, max_tokens=3)
    assert b.placed(again).hot_tokens == len(ENDED)


def test_it_stays_if_it_goes_on_meanwhile() -> None:
    b, _ = start()
    b.step()
    chain = b.scheduler.pool.of(OwnerId(1, 0))
    assert chain is not None
    more = (*chain.tokens.view.tolist(), 65, 66)
    again = b.submit(more, owner=0, max_tokens=40)
    assert len(leave(b)) > 0
    b.run()
    assert b.placed(again).cached_tokens >= len(more) - 2
    lonely = bench(hash_mode=True)
    assert b.text(again) == lonely.text(lonely.ask(more, max_tokens=40))


@pytest.mark.parametrize("how", ["purge", "forget"])
def test_nothing_of_it_is_kept_if_it_is_deleted_meanwhile(how: str) -> None:
    b, _ = start()
    b.step()
    if how == "purge":
        b.scheduler.release(OwnerId(1, 0), purge=True)
    else:
        b.scheduler.cache.forget(DOMAIN, b"", at=0, keep=0)
    b.step()
    assert not b.scheduler.cache.leaver.busy
    b.run()
    tokens = np.array(b.backend.tokenizer.tokenize(ENDED, special=True, bos=True), dtype=np.int32)
    assert b.scheduler.cache.ram.index.covered(DOMAIN, tokens) == 0


def test_a_copy_that_fails_makes_it_leave_at_once() -> None:
    b, backend = start()
    b.step()
    backend.refuses = True
    b.step()
    assert not b.scheduler.cache.leaver.busy
    assert b.scheduler.pool.of(OwnerId(1, 0)) is None
    assert b.scheduler.stats().spills == 1


def test_what_is_copied_counts_as_memory_of_the_tier() -> None:
    b, _ = start(ram_bytes=2000)
    ram = b.scheduler.cache.ram
    while b.scheduler.cache.leaver.busy:
        assert ram.allocated_bytes <= ram.limit_bytes
        b.step()
    assert b.scheduler.pool.of(OwnerId(1, 0)) is None
