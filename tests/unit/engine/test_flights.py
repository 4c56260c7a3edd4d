"""A prefix that several turns wait for is computed once, whatever becomes of the turn that computes it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from unit.engine.harness import DOMAIN, Bench, bench, chat
from warmlane.engine.backends.base import Decoded, DecodeFailed, Slice
from warmlane.engine.backends.simulated import SimulatedBackend, SimulatedSettings
from warmlane.engine.protocol import OwnerId

SYSTEM = "s" * 300


class CountingBackend(SimulatedBackend):
    """Counts prefilled tokens, and fails the slices that compute certain positions as often as told."""

    def __init__(self, *, n_cells: int = 8192, fail_at: int = -1, times: int = 0) -> None:
        super().__init__(SimulatedSettings(n_cells=n_cells, n_seq_max=16, hash_mode=True))
        self.prefilled = 0
        self.fail_at = fail_at
        self.times = times

    def decode(self, slices: Sequence[Slice]) -> Decoded:
        for piece in slices:
            if self.times and piece.position <= self.fail_at < piece.position + piece.tokens.size:
                self.times -= len(slices) == 1
                raise DecodeFailed("poison")
        self.prefilled += sum(s.tokens.size for s in slices if s.tokens.size > 1)
        return super().decode(slices)


def flock(n: int, *, tail: int = 20, backend: CountingBackend | None = None) -> tuple[Bench, list[int], list[str]]:
    """`n` turns with one system prompt and their own messages, all submitted; each computes slices of 64."""
    b = bench(backend=backend or CountingBackend(), capacity=n, slice_alone=64, slice_beside_decode=64)
    prompts = [chat(("system", SYSTEM), ("user", f"{i:02d}" + "u" * tail)) for i in range(n)]
    return b, [b.submit(p, owner=i, max_tokens=8) for i, p in enumerate(prompts)], prompts


def alone(prompt: str, max_tokens: int = 8) -> str:
    b = bench(backend=CountingBackend())
    return b.text(b.ask(prompt, max_tokens=max_tokens))


def prefilled(b: Bench) -> int:
    assert isinstance(b.backend, CountingBackend)
    return b.backend.prefilled


def check(b: Bench, turns: Sequence[int], prompts: Sequence[str]) -> None:
    b.run()
    for turn, prompt in zip(turns, prompts, strict=True):
        assert b.text(turn) == alone(prompt)
    b.check_accounts()


def test_a_shared_system_prompt_is_computed_once() -> None:
    b, turns, prompts = flock(12)
    check(b, turns, prompts)
    stem = len(b.tokens(chat(("system", SYSTEM), reply=False)))
    assert prefilled(b) < stem + 12 * 64
    assert all(b.placed(t).cached_tokens >= stem for t in turns[1:])


def test_a_follower_waits_no_further_than_where_it_diverges() -> None:
    b = bench(backend=CountingBackend(), slice_alone=32, slice_beside_decode=32)
    long = b.submit(chat(("system", SYSTEM), ("user", "l" * 2000)), owner=1, max_tokens=4)
    short = b.submit(chat(("system", SYSTEM), ("user", "hi")), owner=2, max_tokens=4)
    while not b.text(short):
        b.step()
    assert not b.text(long)
    assert b.placed(short).cached_tokens >= 300
    assert prefilled(b) < 600
    b.run()
    assert prefilled(b) < 2400


@pytest.mark.parametrize("purge", [False, True])
def test_a_cancelled_driver_hands_on_what_it_has_computed(purge: bool) -> None:
    b, turns, prompts = flock(3)
    b.step()
    b.step()
    b.scheduler.cancel(turns[0])
    b.scheduler.release(OwnerId(1, 0), purge=purge)
    b.run()
    assert b.placed(turns[1]).cached_tokens == 128
    check(b, turns[1:], prompts[1:])
    assert prefilled(b) < 300 + 3 * 64


def test_a_driver_whose_owner_is_released_hands_on() -> None:
    b, turns, prompts = flock(3)
    b.step()
    b.scheduler.release(OwnerId(1, 0), purge=True)
    check(b, turns[1:], prompts[1:])
    assert b.failed(turns[0])
    assert b.placed(turns[1]).cached_tokens == 64


def test_when_nobody_waits_the_prefill_stops() -> None:
    b, turns, _ = flock(3)
    b.step()
    for turn in turns:
        b.scheduler.cancel(turn)
    assert not b.scheduler.has_work
    assert prefilled(b) == 64


def test_a_driver_that_fails_hands_on_from_the_computed_offset() -> None:
    b, turns, prompts = flock(3, backend=CountingBackend(fail_at=100, times=1))
    check(b, turns[1:], prompts[1:])
    assert "poison" in b.failed(turns[0]).message
    assert b.placed(turns[1]).cached_tokens == 64


def test_a_prefix_that_fails_twice_is_computed_alone_by_those_who_wait_for_it() -> None:
    b, turns, prompts = flock(5, backend=CountingBackend(fail_at=100, times=2))
    check(b, turns[2:], prompts[2:])
    assert all("poison" in b.failed(t).message for t in turns[:2])
    assert [b.placed(t).cached_tokens for t in turns[2:]] == [0, 0, 0]


def test_a_preempted_driver_leaves_its_prefix_to_whoever_fits() -> None:
    b = bench(backend=CountingBackend(n_cells=900), capacity=4, slice_alone=32, slice_beside_decode=32)
    stream = b.submit(chat(("user", "EMIT:" + "x" * 420)), owner=9, max_tokens=410)
    b.step()
    while len(b.text(stream)) < 20:
        b.step()
    prompts = [chat(("user", SYSTEM + "long" * 10)), chat(("user", SYSTEM + "hi"))]
    turns = [b.submit(p, owner=i, max_tokens=8) for i, p in enumerate(prompts)]
    b.run()
    assert b.text(stream) == "x" * 410
    assert [b.text(t) for t in turns] == [alone(p) for p in prompts]
    b.check_accounts()


def test_nobody_follows_a_driver_that_is_stuck() -> None:
    b = bench(slice_alone=64)
    stuck = b.submit(chat(("system", SYSTEM), ("user", "SLEEP:600")), owner=1)
    other = b.submit(chat(("system", SYSTEM), ("user", "hi")), owner=2)
    while not b.text(other).endswith("hi"):
        b.step()
    assert b.time.now_s < 1.0
    b.scheduler.cancel(stuck)
    b.run()
    assert b.text(other) == "echo: hi"


def test_domains_do_not_wait_for_each_other() -> None:
    b = bench(backend=CountingBackend(), slice_alone=64)
    one = b.submit(chat(("system", SYSTEM), ("user", "one")), owner=1, domain=DOMAIN, max_tokens=4)
    two = b.submit(chat(("system", SYSTEM), ("user", "one")), owner=2, domain=b"x" * 16, max_tokens=4)
    b.run()
    assert b.placed(one).cached_tokens == b.placed(two).cached_tokens == 0
    assert b.text(one) == b.text(two)


def test_followers_keep_their_seats() -> None:
    b = bench(backend=CountingBackend(), capacity=2, slice_alone=64)
    turns = [b.submit(chat(("system", SYSTEM), ("user", f"{i}")), owner=i, max_tokens=30) for i in range(2)]
    stranger = b.submit(chat(("user", "hi")), owner=7, max_tokens=30)
    b.run()
    order = [next(i for i, e in enumerate(b.order) if e == t) for t in (*turns, stranger)]
    assert order == sorted(order)
