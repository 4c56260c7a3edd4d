"""Prefixes that clients asked to keep."""

from __future__ import annotations

import numpy as np
import pytest

from unit.engine.harness import DOMAIN, Bench, FakeTime, bench, chat
from warmlane.engine.tiers.pins import Pins


def prompt(message: str, system: str) -> str:
    return chat(("system", system), ("user", message))


def flooded(b: Bench, n: int = 60) -> None:
    """One-off requests, of more than the tiers hold."""
    for i in range(n):
        b.ask(prompt(f"{i:03}" * 40, f"{i:03}" * 60), owner=1000 + i, max_tokens=1)


def reused(b: Bench, common: str) -> int:
    return b.placed(b.ask(prompt("and now?", common), max_tokens=1)).cached_tokens


def pinning() -> Bench:
    return bench(hash_mode=True, n_cells=1024, hot_tokens=256, ram_bytes=16 << 10)


@pytest.mark.parametrize("ram_bytes", [0, 16 << 10])
def test_a_pinned_prefix_outlives_a_burst_of_one_off_requests(ram_bytes: int) -> None:
    b = bench(hash_mode=True, n_cells=1024, hot_tokens=512, ram_bytes=ram_bytes)
    common = "system " * 60
    b.ask(prompt("hi", common), owner=1, max_tokens=4)
    flooded(b)
    assert reused(b, common) < 100
    b.ask(prompt("hi", common), owner=1, max_tokens=4, pin_tokens=420)
    flooded(b)
    assert reused(b, common) >= 420
    assert b.scheduler.stats().pins == 1
    b.check_accounts()


def test_a_pin_ends() -> None:
    b = pinning()
    b.ask(prompt("hi", "system " * 40), owner=1, max_tokens=4, pin_tokens=280, pin_s=300.0)
    b.time.sleep(301.0)
    flooded(b)
    assert reused(b, "system " * 40) < 100
    assert b.scheduler.stats().pins == 0


def test_who_pins_all_there_is_gets_half_of_it() -> None:
    b = pinning()
    for i in range(40):
        b.ask(prompt("hi", f"{i:02} " * 60), owner=i, max_tokens=1, domain=b"the-greedy-one-%02d" % i, pin_tokens=150)
    limit = b.scheduler.cache.ram.limit_bytes
    b.ask(prompt("hello", "z" * 100), owner=100, max_tokens=1)
    b.ask(prompt("other", "y" * 300), owner=101, max_tokens=1)
    now = b.time.now()
    unpinned = [s for s in b.scheduler.cache.ram.index if s.pinned_until_s <= now]
    assert unpinned
    assert b.scheduler.cache.ram.allocated_bytes <= limit


def test_pins_are_bounded_and_take_the_place_of_what_they_extend() -> None:
    clock = FakeTime()
    pins = Pins(now=clock.now, most=6, most_a_domain=3)
    growing = np.arange(100, dtype=np.int32)
    for n in (10, 20, 30):
        pins.add(DOMAIN, growing[:n], 300.0)
    assert len(pins) == 1
    pins.add(DOMAIN, growing[:5], 3600.0)
    assert len(pins) == 2
    for i in range(9):
        clock.sleep(1.0)
        pins.add(b"another", growing[i + 1 : i + 20], 300.0)
    assert len(pins) == 5
    assert pins.until_s(DOMAIN, growing[:6]) == 3600.0
    assert pins.until_s(DOMAIN, growing, 30) == 0.0
    assert pins.until_s(b"a third", growing) == 0.0
