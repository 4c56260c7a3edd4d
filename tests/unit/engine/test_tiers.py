"""Memory and disk below the hot pool, one behaviour at a time."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from unit.engine.harness import DOMAIN, Bench, FakeTime, bench, chat
from warmlane.engine.backends.simulated import SimulatedBackend, SimulatedSettings
from warmlane.engine.protocol import OwnerId
from warmlane.engine.tiers.buffers import Buffers
from warmlane.engine.tiers.disk import DiskTier
from warmlane.engine.tiers.erasing import erase_domains
from warmlane.engine.tiers.ram import RamTier
from warmlane.engine.tiers.writer import InlineWriter, ThreadWriter
from warmlane.errors import ConfigError

KEY = b"m" * 32
SYSTEM = "You are the keeper of a lighthouse. " * 6


def opener(
    directory: Path, *, limit_bytes: int = 1 << 20, key: bytes = KEY
) -> Callable[[SimulatedBackend, FakeTime], DiskTier]:
    def open_disk(backend: SimulatedBackend, time: FakeTime) -> DiskTier:
        return DiskTier(directory, limit_bytes=limit_bytes, key=key, whole=False, writer=InlineWriter(), now=time.now)

    return open_disk


def spilling(directory: Path | None = None, *, ram_bytes: int = 1 << 20, **disk: object) -> Bench:
    """An engine whose idle chains leave the hot pool at once."""
    return bench(
        hash_mode=True,
        hot_tokens=0,
        ram_bytes=ram_bytes,
        disk=opener(directory, **disk) if directory else None,  # type: ignore[arg-type]
    )


def prompt(message: str, system: str = SYSTEM) -> str:
    return chat(("system", system), ("user", message))


def files(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.kv"))


def filled(size: int) -> Callable[[Callable[[int], np.ndarray | None]], np.ndarray | None]:
    def fill(allocate: Callable[[int], np.ndarray | None]) -> np.ndarray | None:
        data = allocate(size)
        if data is not None:
            data[:] = size % 251
        return data

    return fill


def ids(text: str) -> np.ndarray:
    return np.frombuffer(text.encode(), dtype=np.uint8).astype(np.int32)


# memory


def test_buffers_are_used_again_and_never_exceed_their_limit() -> None:
    buffers = Buffers(10_000)
    first = buffers.take(3000)
    assert first is not None
    buffers.give_back(first)
    assert buffers.take(2900) is first
    assert buffers.take(9000) is None
    buffers.give_back(first)
    assert buffers.take(9000) is not None
    assert buffers.allocated_bytes <= 10_000
    assert Buffers(100).take(101) is None
    large = Buffers(4 << 20).take(3 << 20)
    assert large is not None
    assert large.flags.writeable


def test_a_snapshot_larger_than_the_tier_is_refused_and_nothing_is_lost_for_it() -> None:
    ram = RamTier(10_000, whole=False, now=lambda: 0.0)
    kept = ram.store(DOMAIN, ids("small"), 0, None, filled(500))
    assert kept is not None
    assert ram.store(DOMAIN, ids("large"), 0, None, filled(10_001)) is None
    assert kept in ram.index
    assert (ram.refusals, ram.evictions) == (1, 0)


def test_what_is_larger_than_the_tier_is_not_written_and_that_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    b = spilling(tmp_path, ram_bytes=2000)
    for i in range(2):
        b.ask(prompt("hi", f"{i}" * 900), owner=i, max_tokens=4)
    refusals = b.scheduler.stats().ram_refusals
    b.scheduler.close(60.0)
    assert refusals >= 2
    assert not files(tmp_path)
    assert sum("--ram-cache" in record.message for record in caplog.records) == 1


def test_memory_stays_within_its_budget_over_hundreds_of_prompts() -> None:
    ram = RamTier(64_000, whole=False, now=lambda: 0.0)
    for i in range(300):
        assert ram.store(DOMAIN, ids(f"{i} prompt"), 0, None, filled(1000 + 37 * i)) is not None
        assert ram.allocated_bytes <= 64_000
    assert 3 <= len(ram.index) < 64


def test_the_least_recently_used_snapshot_goes_first_and_one_being_read_never() -> None:
    ram = RamTier(3072, whole=False, now=lambda: 0.0)
    a, b, c = (ram.store(DOMAIN, ids(t), 0, None, filled(1000)) for t in ("aa", "bb", "cc"))
    assert a is not None
    assert b is not None
    assert c is not None
    ram.hold(a)
    ram.index.touch(b, 1.0)
    ram.store(DOMAIN, ids("dd"), 0, None, filled(1000))
    assert [s in ram.index for s in (a, b, c)] == [True, True, False]
    ram.remove(a)
    before = a.data.copy()
    ram.store(DOMAIN, ids("ee"), 0, None, filled(990))
    assert np.array_equal(a.data, before)
    ram.let_go(a)
    assert ram.allocated_bytes <= 3072


def test_a_longer_snapshot_takes_the_place_of_what_it_holds() -> None:
    ram = RamTier(10_000, whole=False, now=lambda: 0.0)
    ram.store(DOMAIN, ids("hello"), 0, None, filled(10))
    ram.store(b"x" * 16, ids("hello"), 0, None, filled(10))
    ram.store(DOMAIN, ids("hello you"), 5, None, filled(10))
    assert len(ram.index) == 3
    ram.store(DOMAIN, ids("hello you two"), 0, None, filled(10))
    assert len(ram.index) == 2


def test_segments_continue_one_another() -> None:
    ram = RamTier(10_000, whole=False, now=lambda: 0.0)
    ram.store(DOMAIN, ids("hello"), 0, None, filled(10))
    ram.store(DOMAIN, ids("hello you"), 5, None, filled(10))
    ram.store(DOMAIN, ids("hello you two"), 9, None, filled(10))
    assert ram.index.covered(DOMAIN, ids("hello you two!")) == 13
    assert ram.index.covered(DOMAIN, ids("hello yes")) == 7
    assert ram.index.covered(DOMAIN, ids("jello you")) == 0
    assert ram.index.covered(b"x" * 16, ids("hello you")) == 0
    assert ram.index.needed(DOMAIN, ids("hello you and me")) == 9


# the way down and up


def test_an_idle_chain_leaves_and_comes_back() -> None:
    b = spilling()
    one = b.ask(prompt("hi"), owner=1, max_tokens=20)
    assert b.backend.n_used == 0
    two = b.ask(prompt("hi") + b.text(one) + "<|im_end|>\n", owner=1, max_tokens=5)
    placed = b.placed(two)
    assert placed.cached_tokens == placed.ram_tokens >= len(b.tokens(prompt("hi")))
    stats = b.scheduler.stats()
    assert (stats.spills, stats.restores) == (2, 1)
    assert stats.ram_tokens == placed.ram_tokens


def test_conversations_store_their_own_tails_only() -> None:
    b = spilling()
    turns = [b.submit(prompt(f"{i}"), owner=i, max_tokens=8) for i in range(4)]
    b.run()
    assert all(b.text(t) for t in turns)
    one = len(b.tokens(prompt("0")))
    held = sum(len(s) for s in b.scheduler.cache.ram.index)
    assert held < 2 * one
    again = b.ask(prompt("3"), owner=9, max_tokens=8)
    assert b.text(again) == b.text(turns[3])
    assert b.placed(again).cached_tokens == one - 1


def test_a_purged_conversation_is_gone_from_memory_and_what_others_rest_on_stays() -> None:
    b = bench(hash_mode=True, ram_bytes=1 << 20)
    mine, yours = prompt("mine, which is long " * 4), prompt("yours")
    b.submit(mine, owner=1, max_tokens=8)
    b.submit(yours, owner=2, max_tokens=8)
    b.run()
    chain = b.scheduler.pool.of(OwnerId(1, 1))
    assert chain is not None
    b.scheduler.pool.evict(chain)
    (stored,) = b.scheduler.cache.ram.index
    assert stored.start > 200
    b.scheduler.release(OwnerId(1, 2), purge=True)
    assert b.backend.n_used == 0
    assert b.placed(b.ask(mine, owner=5, max_tokens=1)).cached_tokens == len(b.tokens(mine)) - 1
    assert b.placed(b.ask(yours, owner=6, max_tokens=1)).cached_tokens == stored.start


def test_a_conversation_does_not_hang_on_another_for_the_first_words_of_a_template() -> None:
    b = spilling()
    for i in range(3):
        b.ask(prompt("hi", f"{i}" * 100), owner=i, max_tokens=4)
    assert [s.start for s in b.scheduler.cache.ram.index] == [0, 0, 0]


def test_domains_do_not_meet_in_any_tier(tmp_path: Path) -> None:
    b = spilling(tmp_path)
    b.ask(prompt("secret"), owner=1, max_tokens=4)
    probe = b.ask(prompt("secret"), owner=2, domain=b"other-domain-16b", max_tokens=4)
    assert b.placed(probe).cached_tokens == 0
    assert b.placed(probe).divergence is None
    b.scheduler.close(60.0)
    after = spilling(tmp_path)
    assert after.placed(after.ask(prompt("secret"), domain=b"third-domain-16b")).cached_tokens == 0
    assert after.placed(after.ask(prompt("secret"))).cached_tokens > 0


def test_what_is_cut_off_can_be_returned_to() -> None:
    b = bench(hash_mode=True, ram_bytes=1 << 20)
    first, second = prompt("x" * 200), prompt("y" * 200)
    for text in (first, second, first):
        last = b.ask(text, owner=1, max_tokens=4)
    assert b.placed(last).cached_tokens == len(b.tokens(first)) - 1
    assert b.placed(last).ram_tokens > 150


def test_strangers_leave_while_others_run_and_stay_while_nobody_does() -> None:
    b = bench(hash_mode=True, hot_tokens=8000, ram_bytes=1 << 20)
    b.ask(prompt("hi", "a" * 80), owner=1, max_tokens=4)
    assert b.backend.n_used > 80
    b.submit(prompt("hi", "b" * 80), owner=2, max_tokens=4)
    b.step()
    assert b.scheduler.stats().cells_owned == 0
    b.submit(prompt("ho", "a" * 80), owner=3, max_tokens=4)
    b.run()
    assert b.scheduler.stats().ram_tokens > 80


def test_what_siblings_do_not_share_leaves_while_one_of_them_runs() -> None:
    b = bench(hash_mode=True, hot_tokens=800, ram_bytes=1 << 20)
    common = "s" * 400
    for i in range(4):
        b.ask(prompt("abcd"[i] * 60, common), owner=i, max_tokens=4)
    b.submit(prompt("e" * 60, common), owner=4, max_tokens=4)
    b.step()
    assert b.backend.n_used < 570  # the common part and the one that runs
    b.run()
    again = b.placed(b.ask(prompt("a" * 60, common), owner=0, max_tokens=1))
    assert again.ram_tokens >= 60
    assert again.cached_tokens > 460
    b.check_accounts()


def test_a_preempted_turn_comes_back_from_memory() -> None:
    b = bench(n_cells=400, capacity=2, hash_mode=True, ram_bytes=1 << 20)
    one = b.submit(chat(("user", "EMIT:" + "x" * 120)), owner=1)
    two = b.submit(chat(("user", "EMIT:" + "y" * 120)), owner=2)
    b.run()
    stats = b.scheduler.stats()
    assert (b.text(one), b.text(two)) == ("x" * 120, "y" * 120)
    assert stats.preemptions >= 1
    assert stats.restores >= 1
    b.check_accounts()


# disk


def test_a_restart_is_warm(tmp_path: Path) -> None:
    b = spilling(tmp_path)
    one = b.ask(prompt("hi"), owner=1, max_tokens=20)
    b.scheduler.close(60.0)
    after = spilling(tmp_path)
    two = after.ask(prompt("hi"), owner=1, max_tokens=20)
    assert after.text(two) == b.text(one)
    placed = after.placed(two)
    assert placed.disk_tokens == placed.cached_tokens == placed.prompt_tokens - 1
    assert after.scheduler.stats().disk_tokens == placed.disk_tokens


def test_what_rests_is_written_while_the_engine_runs_and_not_before(tmp_path: Path) -> None:
    b = spilling(tmp_path)
    b.ask(prompt("hi"), owner=1, max_tokens=4)
    assert not files(tmp_path)
    assert b.scheduler.cache.has_unsaved
    b.time.sleep(31.0)
    b.scheduler.cache.tick()
    assert len(files(tmp_path)) == 1
    b.scheduler.cache.tick()
    assert not b.scheduler.cache.has_unsaved
    b.ask(prompt("hi") + "there", owner=1, max_tokens=4)
    b.time.sleep(31.0)
    b.scheduler.cache.tick()
    sizes = sorted(f.stat().st_size for f in files(tmp_path))
    assert len(sizes) == 2
    assert b.scheduler.stats().disk_writes == 2


def test_what_has_left_the_hot_pool_is_written_soon_and_what_is_hot_is_not(tmp_path: Path) -> None:
    b = bench(hash_mode=True, hot_tokens=400, ram_bytes=1 << 20, disk=opener(tmp_path))
    b.ask(prompt("hi", "a" * 300), owner=1, max_tokens=4)
    b.ask(prompt("hi", "b" * 300), owner=2, max_tokens=4)  # for which the first left
    assert [chain.owner for chain in b.scheduler.pool] == [OwnerId(1, 2)]
    b.time.sleep(4.0)
    b.scheduler.cache.tick()
    assert not files(tmp_path)
    b.time.sleep(2.0)
    b.scheduler.cache.tick()
    assert [len(s) for s in b.scheduler.cache.ram.index if s.saved] == [len(b.tokens(prompt("hi", "a" * 300))) + 3]
    assert len(files(tmp_path)) == 1
    b.time.sleep(31.0)
    b.scheduler.cache.tick()
    assert len(files(tmp_path)) == 2


def test_a_conversation_that_leaves_between_its_turns_is_not_written_at_each(tmp_path: Path) -> None:
    b = spilling(tmp_path)
    said = prompt("hi")
    for i in range(10):
        turn = b.ask(said, owner=1, max_tokens=4)
        said += b.text(turn) + chat(("user", f"{i}"))
        b.time.sleep(2.0)
        b.scheduler.cache.tick()
    assert b.scheduler.stats().spills == 10
    assert not files(tmp_path)


def test_a_hot_chain_that_rests_is_written_too_and_stays_hot(tmp_path: Path) -> None:
    b = bench(hash_mode=True, ram_bytes=1 << 20, disk=opener(tmp_path))
    b.ask(prompt("hi"), owner=1, max_tokens=4)
    b.time.sleep(31.0)
    b.scheduler.cache.tick()
    assert files(tmp_path)
    assert b.placed(b.ask(prompt("hi"), owner=1, max_tokens=4)).hot_tokens > 0


def test_memory_that_runs_short_is_written_before_it_is_given_up(tmp_path: Path) -> None:
    b = spilling(tmp_path, ram_bytes=4000)
    for i in range(12):
        b.ask(prompt("hi", f"{i}" * 200), owner=i, max_tokens=4)
        b.time.sleep(1.5)
        b.scheduler.cache.tick()
    assert b.scheduler.stats().ram_evictions > 0
    warm = b.placed(b.ask(prompt("hi", "0" * 200), owner=20, max_tokens=4))
    assert warm.disk_tokens == warm.prompt_tokens - 1


def test_files_are_private_and_no_draft_stays(tmp_path: Path) -> None:
    directory = tmp_path / "new" / "cache"
    b = spilling(directory)
    b.ask(prompt("hi"), owner=1, max_tokens=4)
    b.scheduler.close(60.0)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert {stat.S_IMODE(f.stat().st_mode) for f in directory.iterdir()} == {0o600}
    (file,) = files(directory)
    file.with_suffix(".tmp").write_bytes(b"half a fi")
    (directory / "mine.tmp").write_bytes(b"half a fi")
    spilling(directory)
    assert [path.name for path in directory.glob("*.tmp")] == ["mine.tmp"]


def test_one_process_owns_a_directory(tmp_path: Path) -> None:
    b = spilling(tmp_path)
    with pytest.raises(ConfigError, match=str(os.getpid())):
        spilling(tmp_path)
    b.scheduler.close(1.0)
    spilling(tmp_path)


def test_a_directory_that_cannot_be_used_is_a_config_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(ConfigError, match="--disk-cache"):
        spilling(tmp_path / "file")


@pytest.mark.parametrize("at", [0, 9, 13, 30, -1])
@pytest.mark.parametrize("cut", [False, True])
def test_a_damaged_file_is_a_miss_and_is_removed(tmp_path: Path, at: int, cut: bool) -> None:
    b = spilling(tmp_path)
    one = b.ask(prompt("hi"), owner=1, max_tokens=8)
    b.scheduler.close(60.0)
    (file,) = files(tmp_path)
    content = bytearray(file.read_bytes())
    content[at] ^= 1
    file.write_bytes(content[:at] if cut else content)
    after = spilling(tmp_path)
    two = after.ask(prompt("hi"), owner=1, max_tokens=8)
    assert after.placed(two).cached_tokens == 0
    assert after.text(two) == b.text(one)
    assert not files(tmp_path)
    assert after.scheduler.stats().disk_damaged == 1


def test_what_is_no_file_is_left_alone(tmp_path: Path) -> None:
    b = spilling(tmp_path)
    b.ask(prompt("hi"), owner=1, max_tokens=8)
    b.scheduler.close(60.0)
    name = files(tmp_path)[0].stem
    (tmp_path / "folder.kv").mkdir()
    (tmp_path / "folder.tmp").mkdir()
    (tmp_path / f"{name[::-1]}.kv").mkdir()
    (tmp_path / "dangling.kv").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe.kv")
    before = sorted(tmp_path.iterdir())
    erase_domains(tmp_path, [b"other-domain-16b"])
    after = spilling(tmp_path)
    assert after.placed(after.ask(prompt("hi"), owner=1, max_tokens=8)).disk_tokens > 100
    assert after.scheduler.stats().disk_damaged == 0
    assert sorted(tmp_path.iterdir()) == before


def test_a_file_that_is_not_ours_is_left_alone_and_does_not_count(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs.kv"
    theirs.write_bytes(b"key = value\n" * 1000)
    b = spilling(tmp_path, limit_bytes=4000)
    assert (b.scheduler.stats().disk_bytes, b.scheduler.stats().disk_damaged) == (0, 0)
    for i in range(6):
        b.ask(prompt("hi", f"{i}" * 200), owner=i, max_tokens=4)
    b.scheduler.close(60.0)
    erase_domains(tmp_path, [DOMAIN])
    assert files(tmp_path) == [theirs]
    assert theirs.stat().st_size == 12_000


def test_a_file_of_ours_under_another_name_is_removed_if_it_is_damaged(tmp_path: Path) -> None:
    b = spilling(tmp_path)
    b.ask(prompt("hi"), owner=1, max_tokens=8)
    b.scheduler.close(60.0)
    (file,) = files(tmp_path)
    (tmp_path / "copy.kv").write_bytes(file.read_bytes()[:-1])
    file.unlink()
    after = spilling(tmp_path)
    assert after.scheduler.stats().disk_damaged == 1
    assert not files(tmp_path)


def test_what_takes_the_place_of_a_file_does_no_harm(tmp_path: Path) -> None:
    """Neither where it is read nor where it is written or removed."""
    b = spilling(tmp_path)
    b.ask(prompt("hi"), owner=1, max_tokens=8)
    b.scheduler.close(60.0)
    after = spilling(tmp_path)
    (file,) = files(tmp_path)
    file.unlink()
    file.mkdir()
    assert after.placed(after.ask(prompt("hi"), owner=1, max_tokens=8)).cached_tokens == 0
    after.scheduler.close(60.0)
    assert after.scheduler.stats().disk_write_errors == 1
    assert list(tmp_path.glob("*.kv")) == [file]
    assert not list(tmp_path.glob("*.tmp"))


def test_a_file_that_disappears_is_a_miss(tmp_path: Path) -> None:
    b = spilling(tmp_path)
    b.ask(prompt("hi"), owner=1, max_tokens=8)
    b.scheduler.close(60.0)
    after = spilling(tmp_path)
    files(tmp_path)[0].unlink()
    assert after.placed(after.ask(prompt("hi"), owner=1, max_tokens=8)).cached_tokens == 0


def test_files_of_another_model_are_no_use_and_go_first(tmp_path: Path) -> None:
    foreign = spilling(tmp_path, key=b"f" * 32)
    foreign.ask(prompt("hi"), owner=1, max_tokens=4)
    foreign.scheduler.close(60.0)
    (theirs,) = files(tmp_path)
    limit = int(theirs.stat().st_size * 2.5)
    b = spilling(tmp_path, limit_bytes=limit)
    assert b.scheduler.stats().disk_bytes == theirs.stat().st_size
    for i in range(2):
        assert b.placed(b.ask(prompt(f"hi {i}", f"{i}" + SYSTEM), owner=i, max_tokens=4)).cached_tokens <= 20
    b.scheduler.close(60.0)
    assert not theirs.exists()
    assert len(files(tmp_path)) == 2
    assert sum(f.stat().st_size for f in files(tmp_path)) <= limit


def test_the_disk_budget_holds_and_the_longest_unused_goes(tmp_path: Path) -> None:
    for i in range(6):
        b = spilling(tmp_path, limit_bytes=4000)
        b.ask(prompt("hi", f"{i}" * 200), owner=i, max_tokens=4)
        b.scheduler.close(60.0)
        assert sum(f.stat().st_size for f in files(tmp_path)) <= 4000
    after = spilling(tmp_path, limit_bytes=4000)
    assert after.placed(after.ask(prompt("hi", "5" * 200))).disk_tokens > 200
    assert after.placed(after.ask(prompt("hi", "0" * 200))).cached_tokens < 50


def test_a_snapshot_larger_than_the_disk_budget_is_not_written(tmp_path: Path) -> None:
    b = spilling(tmp_path, limit_bytes=100)
    b.ask(prompt("hi"), owner=1, max_tokens=4)
    b.scheduler.close(60.0)
    assert not files(tmp_path)


def test_a_purge_reaches_the_disk(tmp_path: Path) -> None:
    b = spilling(tmp_path)
    b.ask(prompt("hi"), owner=1, max_tokens=4)
    b.time.sleep(31.0)
    b.scheduler.cache.tick()
    assert files(tmp_path)
    b.scheduler.release(OwnerId(1, 1), purge=True)
    assert not files(tmp_path)
    assert b.placed(b.ask(prompt("hi"), owner=2, max_tokens=4)).cached_tokens == 0


class HeldWriter(InlineWriter):
    """Holds jobs back until told."""

    def __init__(self) -> None:
        self.jobs: list[Callable[[], None]] = []

    def submit(self, job: Callable[[], None]) -> None:
        self.jobs.append(job)


def test_a_purge_overtakes_a_write_under_way(tmp_path: Path) -> None:
    writer = HeldWriter()
    b = bench(
        hot_tokens=0,
        ram_bytes=1 << 20,
        disk=lambda _, time: DiskTier(tmp_path, limit_bytes=1 << 20, key=KEY, whole=False, writer=writer, now=time.now),
    )
    b.ask(prompt("hi"), owner=1, max_tokens=4)
    b.time.sleep(31.0)
    b.scheduler.cache.tick()
    b.scheduler.release(OwnerId(1, 1), purge=True)
    for job in writer.jobs:
        job()
    assert not files(tmp_path)
    b.scheduler.cache.tick()
    assert not b.scheduler.cache.has_unsaved


def test_a_file_is_not_read_where_computing_is_quicker(tmp_path: Path) -> None:
    backend = SimulatedBackend(SimulatedSettings())
    time = FakeTime()
    disk = opener(tmp_path)(backend, time)
    ram = RamTier(1 << 20, whole=False, now=time.now)
    segment = ram.store(DOMAIN, ids("x" * 100), 0, None, filled(1000))
    assert segment is not None
    disk.save(segment, lambda: None)
    found = disk.best(DOMAIN, ids("x" * 100), 0)
    assert found is not None
    file, reach = found
    assert disk.pays(file, reach, 5.0)
    file.size = 1 << 30
    assert disk.pays(file, reach, None)
    assert disk.pays(file, reach, 50.0)
    assert not disk.pays(file, reach, 5.0)
    assert disk.passed_over == 1
    tries = next(n for n in range(2000) if disk.pays(file, reach, 5.0))
    assert 0 < tries < 200


def test_a_thread_writes_in_order_and_ends_in_time() -> None:
    done: list[int] = []
    writer = ThreadWriter()
    for i in range(5):
        writer.submit(lambda i=i: done.append(i))  # type: ignore[misc]
    assert writer.close(10.0)
    assert done == list(range(5))
    stuck, began = ThreadWriter(), threading.Event()
    release = threading.Event()
    stuck.submit(lambda: (began.set(), release.wait(10.0), None)[-1])
    stuck.submit(lambda: done.append(99))
    assert began.wait(10.0)
    assert not stuck.close(0.0)
    release.set()
    assert 99 not in done


# diagnosis


def test_a_divergence_names_the_token_and_shows_both_sides() -> None:
    b = bench()
    b.ask(chat(("user", "the quick brown fox")), owner=1)
    turn = b.ask(chat(("user", "the quick red fox")), owner=1)
    divergence = b.placed(turn).divergence
    assert divergence is not None
    assert divergence.offset == b.placed(turn).cached_tokens == len(b.tokens("<|im_start|>user\nthe quick "))
    assert divergence.cached.startswith("brown fox<|im_end|>")
    assert divergence.prompt.startswith("red fox<|im_end|>")
    assert divergence.cached_tokens > divergence.offset


def test_a_prompt_that_extends_what_is_cached_does_not_diverge() -> None:
    b = bench()
    one = b.ask(chat(("user", "hi")), owner=1)
    assert b.placed(one).divergence is None
    two = b.ask(chat(("user", "hi"), ("assistant", b.text(one)), ("user", "more")), owner=1)
    assert b.placed(two).divergence is None
    same = b.ask(chat(("user", "hi")), owner=2)
    assert b.placed(same).divergence is None


def test_a_divergence_is_seen_across_tiers(tmp_path: Path) -> None:
    b = spilling(tmp_path)
    b.ask(prompt("the quick brown fox"), owner=1, max_tokens=4)
    in_ram = b.placed(b.ask(prompt("the quick red fox"), owner=1, max_tokens=4)).divergence
    b.scheduler.close(60.0)
    after = spilling(tmp_path)
    on_disk = after.placed(after.ask(prompt("the quick blue fox"), owner=1, max_tokens=4)).divergence
    assert in_ram is not None
    assert on_disk is not None
    assert in_ram.offset == on_disk.offset - ("blue"[0] == "brown"[0])
    assert on_disk.prompt.startswith("lue fox")


# models that cannot truncate


def recurrent() -> Bench:
    return bench(can_truncate=False, hash_mode=True, ram_bytes=1 << 20)


def test_without_truncation_the_same_prompt_again_is_warm() -> None:
    b = recurrent()
    one, two = (b.ask(prompt("hi"), owner=i, max_tokens=8) for i in (1, 2))
    assert b.text(one) == b.text(two)
    assert b.placed(two).cached_tokens == b.placed(two).prompt_tokens - 1
    b.check_accounts()


def test_without_truncation_an_edited_message_returns_to_the_turn_before_it() -> None:
    b = recurrent()
    one = b.ask(prompt("hi"), owner=1, max_tokens=8)
    history = prompt("hi") + b.text(one)
    for message in ("first try", "second try"):
        text = history + "<|im_end|>\n" + chat(("user", message))
        turn = b.ask(text, owner=1, max_tokens=8)
        assert b.text(turn) == recurrent_alone(text)
        assert b.placed(turn).cached_tokens >= len(b.tokens(history)) - 1


def recurrent_alone(text: str) -> str:
    b = recurrent()
    return b.text(b.ask(text, max_tokens=8))


def test_without_truncation_a_long_prompt_leaves_ways_back() -> None:
    b = recurrent()
    b.ask("a" * 2000, owner=1, max_tokens=1)
    turn = b.ask("a" * 1500 + "b" * 100, owner=2, max_tokens=1)
    assert b.placed(turn).cached_tokens >= 900
    b.check_accounts()
