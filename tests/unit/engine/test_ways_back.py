"""Models that cannot be cut back to any length: recurrent ones to none, those with a sliding window to what it reaches.

The simulated one with a window forgets whatever it may at once, so only what is kept on purpose is found again.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from unit.engine.harness import DOMAIN, Bench, FakeTime, bench, chat
from warmlane.engine.backends.base import ByteArray
from warmlane.engine.backends.simulated import SimulatedBackend, SimulatedSettings
from warmlane.engine.protocol import OwnerId
from warmlane.engine.tiers.disk import DiskTier
from warmlane.engine.tiers.segments import Segment, SegmentIndex
from warmlane.engine.tiers.writer import InlineWriter

WINDOW = 64
SYSTEM = "You are the keeper of a lighthouse. " * 12
KINDS = {"recurrent": {"can_truncate": False}, "windowed": {"attention_window": WINDOW}}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def made(kind: str, **options: object) -> Bench:
    return bench(hash_mode=True, ram_bytes=1 << 20, slice_alone=128, **KINDS[kind], **options)  # type: ignore[arg-type]


def prompt(message: str) -> str:
    return chat(("system", SYSTEM), ("user", message))


def alone(text: str, max_tokens: int = 8) -> str:
    b = bench(hash_mode=True)
    return b.text(b.ask(text, max_tokens=max_tokens))


def follow_up(b: Bench, text: str, turn: int, message: str) -> str:
    return text + b.text(turn) + "<|im_end|>\n" + chat(("user", message))


def branch(b: Bench) -> int:
    return len(b.tokens(chat(("system", SYSTEM)).removesuffix("<|im_start|>assistant\n") + "<|im_start|>user\n"))


def test_each_turn_continues_the_one_before(kind: str) -> None:
    b = made(kind)
    text, held = prompt("hi"), 0
    for message in ("more", "and more", "the last"):
        turn = b.ask(text, owner=1, max_tokens=8)
        assert b.text(turn) == alone(text)
        assert b.placed(turn).cached_tokens >= held
        held = len(b.tokens(text + b.text(turn))) - 1
        text = follow_up(b, text, turn, message)
    b.check_accounts()


def test_the_same_prompt_again_is_warm(kind: str) -> None:
    b = made(kind)
    one, two = (b.ask(prompt("hi"), owner=i, max_tokens=8) for i in (1, 2))
    assert b.text(one) == b.text(two) == alone(prompt("hi"))
    assert b.placed(two).cached_tokens == b.placed(two).prompt_tokens - 1


def test_an_edited_message_returns_to_the_turn_before_it(kind: str) -> None:
    b = made(kind)
    one = b.ask(prompt("hi"), owner=1, max_tokens=8)
    for message in ("first try", "second try"):
        text = follow_up(b, prompt("hi"), one, message)
        turn = b.ask(text, owner=1, max_tokens=8)
        assert b.text(turn) == alone(text)
        assert b.placed(turn).cached_tokens >= len(b.tokens(prompt("hi") + b.text(one))) - 1
    b.check_accounts()


def test_where_two_prompts_part_a_third_finds_a_way_back(kind: str) -> None:
    b = made(kind)
    for message in ("first", "second"):
        b.ask(prompt(message), owner=1, max_tokens=4)
    third = b.ask(prompt("third"), owner=1, max_tokens=8)
    assert b.placed(third).cached_tokens == branch(b)
    assert b.text(third) == alone(prompt("third"))


def test_a_pinned_prefix_is_a_way_back_for_the_next(kind: str) -> None:
    b = made(kind)
    b.ask(prompt("first"), owner=1, max_tokens=4, pin_tokens=branch(b))
    second = b.ask(prompt("second"), owner=1, max_tokens=8)
    assert b.placed(second).cached_tokens == branch(b)
    assert b.text(second) == alone(prompt("second"))


def test_of_two_at_once_one_computes_what_both_share(kind: str) -> None:
    b = made(kind)
    turns = [b.submit(prompt(message), owner=i, max_tokens=8) for i, message in enumerate(("here", "there"))]
    b.run()
    assert [b.placed(turn).cached_tokens for turn in turns] == [0, branch(b)]
    assert [b.text(turn) for turn in turns] == [alone(prompt("here")), alone(prompt("there"))]


def test_what_left_the_cells_comes_back_whole(kind: str) -> None:
    b = made(kind, hot_tokens=0)
    one = b.ask(prompt("hi"), owner=1, max_tokens=8)
    b.ask(chat(("user", "a stranger")), owner=2, max_tokens=8)
    text = follow_up(b, prompt("hi"), one, "more")
    two = b.ask(text, owner=1, max_tokens=8)
    assert b.placed(two).ram_tokens >= len(b.tokens(prompt("hi") + b.text(one))) - 1
    assert b.text(two) == alone(text)
    assert b.scheduler.stats().restore_failures == 0


def test_a_restart_is_warm(kind: str, tmp_path: Path) -> None:
    def open_disk(backend: SimulatedBackend, time: FakeTime) -> DiskTier:
        info = backend.info
        return DiskTier(
            tmp_path,
            limit_bytes=1 << 20,
            key=b"k" * 32,
            whole=not info.can_truncate,
            window=info.attention_window,
            writer=InlineWriter(),
            now=time.now,
        )

    b = made(kind, disk=open_disk)
    one = b.ask(prompt("hi"), owner=1, max_tokens=8)
    text = follow_up(b, prompt("hi"), one, "more")
    b.scheduler.close(60.0)
    after = made(kind, disk=open_disk)
    two = after.ask(text, owner=1, max_tokens=8)
    assert after.placed(two).disk_tokens >= len(b.tokens(prompt("hi") + b.text(one))) - 1
    assert after.text(two) == alone(text)


def test_nothing_of_one_domain_serves_another(kind: str) -> None:
    b = made(kind, hot_tokens=0)
    for owner, domain in enumerate((DOMAIN, b"somebody else's!")):
        turn = b.ask(prompt("hi"), owner=owner, domain=domain, max_tokens=8)
        assert b.placed(turn).cached_tokens == 0


def test_a_cancelled_turn_leaves_the_one_before_it_warm(kind: str) -> None:
    b = made(kind)
    one = b.ask(prompt("hi"), owner=1, max_tokens=8)
    held = b.tokens(prompt("hi") + b.text(one)).size - 1
    text = follow_up(b, prompt("hi"), one, "more")
    cancelled = b.submit(text, owner=1, max_tokens=400)
    for _ in range(6):
        b.step()
    b.scheduler.cancel(cancelled)
    b.scheduler.truncate(OwnerId(1, 1), held)
    again = b.ask(text, owner=1, max_tokens=8)
    assert b.placed(again).cached_tokens >= held
    assert b.text(again) == alone(text)


def test_a_windows_snapshot_serves_at_its_end_or_behind_what_is_held() -> None:
    index: SegmentIndex[Segment] = SegmentIndex(whole=False, window=4)
    tokens = bench().tokens("abcdefghij")
    segment = Segment(DOMAIN, tokens, 2, 1, None, 0.0)
    assert index.serves(segment, 10, 2)
    assert not index.serves(segment, 9, 6)
    assert index.serves(segment, 9, 7)
    near_the_end = Segment(DOMAIN, tokens, 8, 1, None, 0.0)
    assert index.serves(near_the_end, 9, 8)


class UnwillingBackend(SimulatedBackend):
    """Restores nothing."""

    def restore(self, seq: int, data: ByteArray, begin: int, end: int) -> bool:
        return False


def test_what_was_given_up_for_a_restore_in_vain_is_not_said_to_be_warm() -> None:
    """A recurrent model restores into an empty sequence: what that held is lost with the restore."""
    backend = UnwillingBackend(SimulatedSettings(can_truncate=False, hash_mode=True))
    b = bench(backend=backend, ram_bytes=1 << 20)
    stem = "a" * 80
    b.ask(stem, owner=1, max_tokens=0)
    b.ask(stem + "b" * 80, owner=2, max_tokens=0)
    longer = b.scheduler.pool.of(OwnerId(1, 2))
    assert longer is not None
    b.scheduler.pool.evict(longer)
    placed = b.placed(b.ask(stem + "b" * 80, owner=3, max_tokens=0))
    assert b.scheduler.stats().restore_failures == 1
    assert (placed.cached_tokens, placed.hot_tokens, placed.ram_tokens) == (0, 0, 0)
