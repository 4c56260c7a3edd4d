"""A conversation that has ended leaves the hot pool between the steps of those that go on."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest

from unit.engine.harness import Bench, FakeTime, bench
from warmlane.engine.backends.base import Allocate, ByteArray
from warmlane.engine.backends.simulated import SimulatedBackend, SimulatedSettings
from warmlane.engine.leaving import LEAST_PIECE
from warmlane.engine.pace import SHORTEST_GAP_MS
from warmlane.engine.protocol import OwnerId
from warmlane.engine.scheduler import COPY_AHEAD_MS

CELL_MS = 2.0
ENDED = "the quick brown fox jumps over the lazy dog and goes on and on " * 3
RUNNING = "lorem ipsum dolor sit amet"
DOMAIN = b"domain-of-tenant"


class Copying(SimulatedBackend):
    """Notes how many cells each piece took, and how many copies there were; `refuses` makes it take none, and without
    `joins` parts stay parts."""

    copied: tuple[int, ...] = ()
    copies = 0
    refuses = False
    joins = True

    def joined(self, parts: Sequence[ByteArray], allocate: Allocate) -> ByteArray | None:
        return super().joined(parts, allocate) if self.joins else None

    def snapshot(self, seq: int, start: int, allocate: Allocate, *, end: int | None = None) -> ByteArray | None:
        if self.refuses:
            self.refuses = False
            return None
        self.copies += 1
        if end is not None:
            self.copied = (*self.copied, end - start)
        return super().snapshot(seq, start, allocate, end=end)


def start(
    *, ram_bytes: int = 1 << 20, hot_tokens: int = 1000, begun: bool = True, n_ended: int = 1
) -> tuple[Bench, Copying]:
    """A conversation of owner 0, or some, that has ended beside a running one, and has `begun` to leave."""
    time = FakeTime()
    settings = SimulatedSettings(n_cells=2000, n_seq_max=5, hash_mode=True, snapshot_s_per_token=CELL_MS / 1e3)
    backend = Copying(settings, now=time.now, sleep=time.sleep)
    b = bench(backend=backend, time=time, hot_tokens=hot_tokens, ram_bytes=ram_bytes, least_shared=8)
    for owner in range(2, 1 + n_ended):
        b.submit(ENDED[::-1], owner=owner, max_tokens=200)
    ended = b.submit(ENDED, owner=0, max_tokens=200)
    b.submit(RUNNING, owner=1, max_tokens=900)
    while not b.events[ended] or not hasattr(b.events[ended][-1], "reason"):
        b.step()
    assert b.scheduler.cache.leaver.busy == (n_ended > 1)  # those that ended before
    if begun:
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


def rest(b: Bench) -> list[float]:
    """Step while there is something to copy ahead; milliseconds of each step."""
    took = []
    while b.scheduler.rests_in_s is not None:
        assert not b.scheduler.has_work
        began = b.time.now()
        b.step()
        took.append((b.time.now() - began) * 1e3)
    return took


def test_it_leaves_bit_by_bit_and_can_be_had_again() -> None:
    b, backend = start()
    assert b.scheduler.pool.of(OwnerId(1, 0)) is not None
    took = leave(b)
    assert SHORTEST_GAP_MS < max(took[1:]) == pytest.approx(LEAST_PIECE * CELL_MS)
    assert backend.copied[0] == 1
    assert backend.copied[1] == len(ENDED) - 1 + LEAST_PIECE - 1  # its prompt was one batch
    assert set(backend.copied[2:-1]) == {LEAST_PIECE}
    assert sum(backend.copied) == len(ENDED) + 199
    assert b.scheduler.pool.of(OwnerId(1, 0)) is None
    stats = b.scheduler.stats()
    assert (stats.spills, stats.ram_segments) == (1, 1)
    again = b.submit(ENDED + "so", owner=2, max_tokens=3)
    b.run()
    assert (b.placed(again).ram_tokens, b.placed(again).hot_tokens) == (len(ENDED), 0)


def test_copying_takes_every_second_step_beside_a_prompt() -> None:
    b, backend = start()
    newcomer = b.submit("z" * 3000, owner=2, max_tokens=1)
    copies, lengths = [], []
    while b.scheduler.cache.leaver.busy:
        b.step()
        chain = b.scheduler.pool.of(OwnerId(1, newcomer))
        copies.append(len(backend.copied))
        lengths.append(len(chain) if chain is not None else 0)
    copied = [b > a for a, b in pairwise(copies)]
    computed = [b > a for a, b in pairwise(lengths)]
    assert sum(copied) > 5
    assert [not c for c in copied] == computed


def test_all_of_it_leaves_at_once_where_nothing_decodes() -> None:
    b, backend = start()
    b.submit("z" * 300, owner=2, max_tokens=1)
    b.scheduler.cancel(1)
    before = len(backend.copied)
    b.step()
    assert not b.scheduler.cache.leaver.busy
    assert [n > LEAST_PIECE for n in backend.copied[before:]] == [True]
    assert b.scheduler.pool.of(OwnerId(1, 0)) is None


def test_it_is_copied_but_stays_once_nobody_runs_any_more() -> None:
    b, _ = start()
    b.scheduler.cancel(1)
    rest(b)
    assert not b.scheduler.cache.leaver.busy
    chain = b.scheduler.pool.of(OwnerId(1, 0))
    assert chain is not None
    assert b.scheduler.cache.ram.index.covered(DOMAIN, chain.tokens.view) == len(chain)
    more = (*chain.tokens.view.tolist(), 65, 66)
    assert b.placed(b.ask(more, owner=2, max_tokens=3)).hot_tokens == len(more) - 2


def test_it_stays_if_it_goes_on_meanwhile() -> None:
    b, _ = start()
    b.step()
    chain = b.scheduler.pool.of(OwnerId(1, 0))
    assert chain is not None
    more = (*chain.tokens.view.tolist(), 65, 66)
    again = b.submit(more, owner=0, max_tokens=40)
    b.step()
    assert not b.scheduler.cache.leaver.busy
    b.run()
    assert b.placed(again).hot_tokens >= len(more) - 2
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


def test_what_would_take_much_of_the_memory_twice_leaves_at_once() -> None:
    b, backend = start(ram_bytes=20_000, begun=False)
    b.step()
    assert backend.copied == (1,)
    assert not b.scheduler.cache.leaver.busy
    assert b.scheduler.pool.of(OwnerId(1, 0)) is None
    assert b.scheduler.stats().ram_segments == 1


def test_where_snapshots_cannot_be_joined_it_leaves_at_once_and_so_does_the_next() -> None:
    b, backend = start(begun=False)
    backend.joins = False
    b.step()
    assert backend.copied == (1,)
    assert b.scheduler.pool.of(OwnerId(1, 0)) is None
    b.submit(ENDED[::-1], owner=2, max_tokens=5)
    while b.scheduler.stats().spills < 2:
        b.step()
    assert backend.copied == (1,)


def test_the_rest_is_copied_at_once_where_there_is_too_much_idle() -> None:
    b, backend = start(hot_tokens=500)
    b.submit(RUNNING[::-1] * 6, owner=2, max_tokens=1)
    leave(b)
    assert backend.copied[3] > 5 * LEAST_PIECE
    assert sum(backend.copied[:4]) == len(ENDED) + 199


def test_what_another_held_leaves_behind_it() -> None:
    b = bench(hash_mode=True, hot_tokens=1000, ram_bytes=1 << 20)
    b.ask(ENDED, owner=0, max_tokens=40)
    chain = b.scheduler.pool.of(OwnerId(1, 0))
    assert chain is not None
    b.ask((*chain.tokens.view.tolist(), *b"so"), owner=2, max_tokens=5)
    assert not b.scheduler.pool.table.only_holder(chain.cells.view)
    b.submit("z" * 50, owner=1, max_tokens=40)
    b.step()
    assert [chain.owner for chain in b.scheduler.pool] == [OwnerId(1, 1)]


def test_a_turn_that_comes_goes_first() -> None:
    b, backend = start(begun=False)
    turn = b.submit("z" * 30, owner=2, max_tokens=5)
    b.step()
    assert b.placed(turn)
    assert b.text(turn)
    assert backend.copies == 0
    b.step()
    assert backend.copies > 0


def test_the_next_one_leaves_without_a_delay() -> None:
    b, _ = start(n_ended=2)
    idle = 0
    while b.scheduler.cache.leaver.spills < 2:
        b.step()
        idle += not b.scheduler.cache.leaver.busy
    assert idle <= 2


def test_what_rests_is_copied_so_that_it_leaves_at_once_later() -> None:
    b, backend = start(begun=False)
    b.scheduler.cancel(1)
    chains = [len(chain) for chain in b.scheduler.pool]
    took = rest(b)
    assert sorted(took)[-3] <= max(COPY_AHEAD_MS, LEAST_PIECE * CELL_MS) + 0.01  # but for prompts, each of one batch
    assert len(took) > 5
    assert [len(chain) for chain in b.scheduler.pool] == chains
    assert b.scheduler.stats().ram_segments == len(chains)
    copies = backend.copies
    newcomer = b.submit("z" * 50, owner=2, max_tokens=40)
    b.step()
    assert [chain.owner for chain in b.scheduler.pool] == [OwnerId(1, newcomer)]
    assert backend.copies == copies
    b.run()
    again = b.ask(ENDED + "so", owner=3, max_tokens=1)
    assert b.placed(again).ram_tokens == len(ENDED)


def test_copying_ahead_gives_way_to_a_turn() -> None:
    b, _ = start(begun=False)
    b.scheduler.cancel(1)
    b.step()
    assert b.scheduler.cache.leaver.busy
    turn = b.submit("z" * 50, owner=2, max_tokens=3)
    b.step()
    assert b.placed(turn)
    assert b.scheduler.pool.of(OwnerId(1, 1)) is None
    b.run()
    rest(b)
    assert not b.scheduler.cache.leaver.busy


def test_only_what_is_new_is_copied_again() -> None:
    b, _ = start(begun=False)
    b.scheduler.cancel(1)
    rest(b)
    chain = b.scheduler.pool.of(OwnerId(1, 0))
    assert chain is not None
    before = len(chain)
    b.ask((*chain.tokens.view.tolist(), *b"and so on"), owner=0, max_tokens=20)
    rest(b)
    ram = b.scheduler.cache.ram.index
    assert sorted(segment.start for segment in ram if segment.tokens.size > before) == [before]
    assert ram.covered(DOMAIN, chain.tokens.view) == len(chain)


def three_that_rest(ram_bytes: int) -> Bench:
    b = bench(hash_mode=True, hot_tokens=2000, ram_bytes=ram_bytes, capacity=3)
    turns = [b.submit(chr(65 + owner) * 300, owner=owner, max_tokens=400) for owner in range(3)]
    while not all(b.text(turn) for turn in turns):
        b.step()
    for turn in turns:  # who ends beside others would leave
        b.scheduler.cancel(turn)
    rest(b)
    assert len(b.scheduler.pool) == 3
    return b


def test_nothing_is_copied_ahead_where_half_of_the_memory_is_taken() -> None:
    b = three_that_rest(1 << 20)
    assert b.scheduler.stats().ram_segments == 3
    size = max(segment.size for segment in b.scheduler.cache.ram.index)
    b = three_that_rest(3 * size)
    assert b.scheduler.stats().ram_segments == 2
    assert b.scheduler.stats().ram_evictions == 0


@pytest.mark.parametrize(
    "options", [{"hot_tokens": None}, {"flat": True}, {"attention_window": 20}, {"can_truncate": False}]
)
def test_nothing_is_copied_ahead_where_nothing_leaves_bit_by_bit(options: dict[str, bool | int | None]) -> None:
    b = bench(hash_mode=True, ram_bytes=1 << 20, **{"hot_tokens": 1000, **options})  # type: ignore[arg-type]
    b.ask(ENDED, max_tokens=40)
    before = b.scheduler.stats().ram_segments
    rest(b)
    assert b.scheduler.stats().ram_segments == before


def test_chats_that_share_their_beginning_are_all_copied_ahead() -> None:
    b, backend = start(begun=False)
    b.scheduler.cancel(1)
    b.ask(ENDED + "and so on", owner=2, max_tokens=100)
    rest(b)
    copies = backend.copies
    b.submit("z" * 50, owner=3, max_tokens=40)
    b.step()
    assert [chain.owner for chain in b.scheduler.pool] == [OwnerId(1, 3)]
    assert backend.copies == copies


def test_who_waits_for_the_end_of_a_reply_does_not_wait_for_copies() -> None:
    b, backend = start(begun=False)
    b.scheduler.cancel(1)
    rest(b)
    turn = b.submit(ENDED + "and so on", owner=2, max_tokens=100)
    while not b.events[turn] or not hasattr(b.events[turn][-1], "reason"):
        copies = backend.copies
        b.step()
    assert backend.copies == copies
    assert b.scheduler.rests_in_s == 0.0


def test_a_turn_that_waits_for_its_grammar_ends_copying_ahead() -> None:
    b, _ = start(begun=False)
    b.scheduler.cancel(1)
    b.submit("z" * 50, owner=2, grammar='start: "a"', compile_now=False)
    b.step()
    assert b.scheduler.rests_in_s is None
    assert not b.scheduler.has_work


def test_copying_ahead_begins_when_nobody_has_gone_on_for_a_while() -> None:
    b = bench(hash_mode=True, hot_tokens=1000, ram_bytes=1 << 20, rest_s=0.5)
    b.ask(ENDED, owner=1, max_tokens=20)
    b.step()
    assert b.scheduler.rests_in_s == 0.5
    assert b.scheduler.stats().ram_segments == 0
    b.time.sleep(0.3)
    assert b.scheduler.rests_in_s == pytest.approx(0.2)
    b.ask(ENDED + "so", owner=1, max_tokens=20)
    b.time.sleep(0.3)
    assert b.scheduler.rests_in_s == pytest.approx(0.2)
    b.time.sleep(0.2)
    b.step()
    assert b.scheduler.stats().ram_segments == 1
    b.step()
    assert b.scheduler.rests_in_s is None
