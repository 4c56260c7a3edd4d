"""Faults other servers have had, tried on the scheduler step by step. docs/cases.md tells which is which."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Sequence

import pytest

from unit.engine.harness import Bench, FakeTime, bench, chat
from warmlane.engine.backends.base import Decoded, Slice
from warmlane.engine.backends.simulated import SimulatedBackend, SimulatedSettings
from warmlane.engine.pace import Pace
from warmlane.engine.protocol import Chunk, OwnerId

STEM = "You answer in hashes. " * 20


class MeteredBackend(SimulatedBackend):
    """Counts the tokens it computes, in all and of the last batch."""

    def __init__(self, *, n_cells: int) -> None:
        super().__init__(SimulatedSettings(n_cells=n_cells, n_seq_max=16, hash_mode=True))
        self.computed = 0
        self.last_batch = 0

    def decode(self, slices: Sequence[Slice]) -> Decoded:
        self.last_batch = sum(s.tokens.size for s in slices)
        self.computed += self.last_batch
        return super().decode(slices)


def question(n: int) -> str:
    return chat(("system", STEM), ("user", f"number {n} " + "of twenty " * (n % 5)))


def token_ids(b: Bench, turn: int) -> tuple[int, ...]:
    return b.ended(turn).token_ids


def dropped(b: Bench) -> None:
    """Every idle prefix is given up for good."""
    for owner in range(20):
        b.scheduler.release(OwnerId(1, owner), purge=True)
    while b.scheduler.pool.evict_one():
        pass
    assert b.backend.n_used == 0


def pushed_out(b: Bench) -> None:
    """Strangers come until the cells hold nothing of it; what left is restored when it is asked for again."""
    for stranger in range(8):
        b.ask(f"{stranger}" + "z" * 900, owner=100 + stranger, domain=b"s" * 16, max_tokens=1)


@pytest.mark.parametrize("leave", [dropped, pushed_out], ids=["evicted", "reloaded"])
def test_twenty_answers_are_the_same_cold_warm_and_after_they_were_gone(leave: Callable[[Bench], None]) -> None:
    b = bench(n_cells=1024, hash_mode=True, ram_bytes=1 << 20)
    for n in range(20):
        cold = bench(n_cells=1024, hash_mode=True)
        expected = token_ids(cold, cold.ask(question(n), max_tokens=24))
        first = b.ask(question(n), owner=n, max_tokens=24)
        warm = b.ask(question(n), owner=n, max_tokens=24)
        assert b.placed(warm).cached_tokens == b.placed(warm).prompt_tokens - 1
        leave(b)
        again = b.ask(question(n), owner=n, max_tokens=24)
        assert token_ids(b, first) == token_ids(b, warm) == token_ids(b, again) == expected
        reloaded = b.placed(again).cached_tokens
        assert reloaded == 0 if leave is dropped else reloaded > len(STEM)
    b.check_accounts()


def test_what_is_computed_is_what_was_not_cached() -> None:
    backend = MeteredBackend(n_cells=4096)
    b = bench(backend=backend)
    history = [("system", STEM)]
    for n in range(5):
        history.append(("user", f"question {n}"))
        before = backend.computed
        turn = b.ask(chat(*history), owner=1, max_tokens=16)
        placed, ended = b.placed(turn), b.ended(turn)
        assert backend.computed - before == placed.prompt_tokens - placed.cached_tokens + ended.output_tokens - 1
        assert (placed.cached_tokens > 0) == (n > 0)
        history.append(("assistant", b.text(turn)))


def test_twelve_conversations_on_one_long_prefix_run_in_the_cells_of_three() -> None:
    stem = "p" * 2000
    prompts = [chat(("system", stem), ("user", f"{n:02d} EMIT:{n:02d}" + "y" * 60)) for n in range(12)]
    b = bench(n_cells=3 * (len(prompts[0]) + 70), n_seq_max=16, capacity=12)
    turns = [b.submit(prompt, owner=n) for n, prompt in enumerate(prompts)]
    at_once = 0
    while b.scheduler.has_work:
        b.step()
        at_once = max(at_once, b.scheduler.stats().decoding_turns)
    assert at_once == 12
    assert b.scheduler.stats().preemptions == 0
    assert [b.text(t) for t in turns] == [f"{n:02d}" + "y" * 60 for n in range(12)]


def test_one_cache_takes_twelve_conversations_in_turn() -> None:
    prompts = [chat(("system", "p" * 300), ("user", f"EMIT:{n}")) for n in range(12)]
    b = bench(n_cells=500, flat=True)
    turns = [b.submit(prompt, owner=n) for n, prompt in enumerate(prompts)]
    b.run()
    assert [b.text(t) for t in turns] == [str(n) for n in range(12)]


def test_eight_thousand_tokens_beside_a_stream_leave_no_gap_in_it() -> None:
    """A token of the stream in every step, and never more than a slice of the long prompt between two of them."""
    backend = MeteredBackend(n_cells=16384)
    b = bench(backend=backend, slice_beside_decode=64)
    stream = b.submit(chat(("user", "EMIT:" + "s" * 400)))
    b.step()
    long = b.submit(chat(("user", "l" * 8000 + " EMIT:ok")))
    said = [len(b.text(stream))]
    while not b.text(long):
        b.step()
        said.append(len(b.text(stream)))
        assert backend.last_batch <= 1 + 64
    assert len(said) > 8000 // 64
    assert {after - before for before, after in itertools.pairwise(said)} == {1}
    b.run()
    assert b.text(stream) == "s" * 400
    assert b.text(long) == "ok"


@pytest.mark.parametrize("n_streams", [1, 4])
@pytest.mark.parametrize("prefill_ms", [0.5, 2.0, 5.0])
def test_a_long_prefill_leaves_streams_gaps_of_less_than_ten_of_their_steps(prefill_ms: float, n_streams: int) -> None:
    """By the engine's own choice of slices; and it is no slower for it than the room in the steps allows."""
    time, decode_s = FakeTime(), 0.011
    settings = SimulatedSettings(n_cells=16384, prefill_s_per_token=prefill_ms / 1e3, decode_s=decode_s)
    backend = SimulatedBackend(settings, now=time.now, sleep=time.sleep)
    b = bench(backend=backend, time=time, capacity=8, pace=Pace(n_batch=backend.info.n_batch))
    streams = [b.submit(chat(("user", f"EMIT:{n}" + "s" * 900))) for n in range(n_streams)]
    while not all(b.text(stream) for stream in streams):
        b.step()
    calm = gaps_until(b, streams, lambda: all(len(b.text(stream)) > 100 for stream in streams))
    began = time.now()
    long = b.submit(chat(("user", "l" * 4000 + " EMIT:ok")))
    beside = gaps_until(b, streams, lambda: bool(b.text(long)))
    assert statistics.median(calm) == pytest.approx(decode_s)
    assert len(beside) > 10 * n_streams
    assert max(beside) < 10 * decode_s
    assert time.now() - began < 2 * 4000 * prefill_ms / 1e3
    b.run()
    assert [b.text(stream) for stream in streams] == [f"{n}" + "s" * 900 for n in range(n_streams)]


def gaps_until(b: Bench, streams: Sequence[int], over: Callable[[], bool]) -> list[float]:
    """Seconds between one chunk of a stream and its next, of all of them."""
    gaps: list[float] = []
    last = dict.fromkeys(streams, b.time.now())
    while not over():
        said = {stream: len(b.events[stream]) for stream in streams}
        b.step()
        for stream in streams:
            for event in b.events[stream][said[stream] :]:
                assert isinstance(event, Chunk)
                gaps.append(b.time.now() - last[stream])
                last[stream] = b.time.now()
    return gaps
