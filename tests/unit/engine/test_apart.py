"""Long sequences go on in a context of their own, and come back when somebody is to share what they hold."""

from __future__ import annotations

import numpy as np
import pytest

from unit.engine.harness import Bench, SimulatedPair, bench, chat, held, saved
from warmlane.engine.assembly import open_backend, with_room_apart
from warmlane.engine.backends.apart import SEQUENCES_APART
from warmlane.engine.backends.base import Allocate, ByteArray, CacheFull, SequenceFault, Slice
from warmlane.engine.backends.simulated import SimulatedBackend, SimulatedSettings
from warmlane.engine.config import EngineConfig, EngineKind
from warmlane.engine.protocol import OwnerId

TEXT = b"the quick brown fox jumps over the lazy dog"
SETTINGS = SimulatedSettings(n_cells=64, n_seq_max=6, hash_mode=True)
STREAM = "once upon a time"
LONG = "lorem ipsum dolor sit amet " * 20
APART_TOKENS = 100


def piece(seq: int, position: int, text: bytes) -> Slice:
    return Slice(seq, position, np.frombuffer(text, dtype=np.uint8).astype(np.int32), wants_logits=True)


def pair(n_apart: int = 64) -> SimulatedPair:
    apart = SimulatedSettings(n_cells=n_apart, n_seq_max=SEQUENCES_APART, hash_mode=True)
    return SimulatedPair(SimulatedBackend(SETTINGS), SimulatedBackend(apart))


def begun(n_apart: int = 64) -> SimulatedPair:
    """Sequence 0 has gone apart with nine cells and has five more."""
    both = pair(n_apart)
    both.decode([piece(0, 0, TEXT[:9])])
    assert both.set_apart(0, 9)
    both.decode([piece(0, 9, TEXT[9:14])])
    return both


def next_row(backend: SimulatedBackend | SimulatedPair, seq: int, position: int) -> list[float]:
    return backend.decode([piece(seq, position, b"!")]).logits(0).tolist()


def test_it_goes_on_as_if_it_had_stayed() -> None:
    both, one = begun(), SimulatedBackend(SETTINGS)
    one.decode([piece(0, 0, TEXT[:14])])
    assert held(both, 0) == held(one, 0)
    assert held(both.here, 0) == {at: TEXT[at] for at in range(9)}
    assert next_row(both, 0, 14) == next_row(one, 0, 14)


def test_one_batch_may_have_rows_of_both() -> None:
    both = begun()
    both.decode([piece(1, 0, TEXT[:3])])
    decoded = both.decode([piece(1, 3, b"a"), piece(0, 14, b"b"), piece(2, 0, b"c")])
    for index, (seq, text) in enumerate(((1, TEXT[:3] + b"a"), (0, TEXT[:14] + b"b"), (2, b"c"))):
        assert held(both, seq) == dict(enumerate(text))
        alone = SimulatedBackend(SETTINGS).decode([piece(0, 0, text)]).logits(0)
        assert np.array_equal(decoded.logits(index), alone)


def test_what_it_held_before_is_shared_without_its_coming_back() -> None:
    both = begun()
    assert both.share(0, 1, 9)
    assert both.n_apart == 1
    assert held(both, 1) == dict(enumerate(TEXT[:9]))


def test_it_comes_back_to_be_shared_beyond_that_and_no_cell_is_there_twice() -> None:
    both = begun()
    assert both.share(0, 1, 12)
    assert both.n_apart == both.apart.n_used == 0
    assert both.here.n_used == both.n_used == 14
    assert held(both, 0) == dict(enumerate(TEXT[:14]))
    assert held(both, 1) == dict(enumerate(TEXT[:12]))


def test_it_stays_where_there_is_no_room_for_it_here() -> None:
    both = begun()
    both.decode([piece(2, 0, TEXT + TEXT[:8])])
    before = held(both, 0)
    assert not both.share(0, 1, 12)
    assert held(both, 1) == {}
    assert held(both, 0) == before
    assert both.n_apart == 1


@pytest.mark.parametrize(("length", "stays"), [(12, True), (9, True), (8, False)])
def test_cut_to_less_than_it_went_with_it_is_back(length: int, stays: bool) -> None:
    both = begun()
    assert both.truncate(0, length)
    assert both.n_apart == stays
    assert held(both, 0) == dict(enumerate(TEXT[:length]))
    assert both.n_used == length


def test_dropped_it_is_nowhere() -> None:
    both = begun()
    both.drop(0)
    assert both.n_apart == both.here.n_used == both.apart.n_used == 0


def test_cleared_it_is_nowhere() -> None:
    both = begun()
    both.clear()
    assert both.n_apart == both.here.n_used == both.apart.n_used == 0
    assert all(both.set_apart(seq, 0) for seq in range(SEQUENCES_APART))


def test_snapshots_are_those_of_one_that_stayed() -> None:
    both, one = begun(), SimulatedBackend(SETTINGS)
    one.decode([piece(0, 0, TEXT[:14])])
    assert held(both, 0) == held(one, 0)
    data = saved(both, 0, 5)
    assert both.restore(1, saved(both, 0), 0, 5)
    assert both.restore(1, data, 5, 14)
    assert held(both, 1) == held(one, 0)


def test_it_is_restored_where_it_is() -> None:
    both = begun()
    both.decode([piece(1, 0, TEXT[:30])])
    assert both.restore(0, saved(both, 1), 14, 30)
    assert held(both, 0) == dict(enumerate(TEXT[:30]))
    assert both.here.n_used == 9 + 30
    assert both.share(0, 2, 30)
    assert held(both, 2) == dict(enumerate(TEXT[:30]))


def test_a_batch_that_finds_no_cells_changes_nothing() -> None:
    both = begun()
    both.decode([piece(1, 0, TEXT[:40])])
    with pytest.raises(CacheFull):
        both.decode([piece(0, 14, TEXT[14:20]), piece(1, 40, TEXT)])
    assert held(both, 0) == dict(enumerate(TEXT[:14]))
    assert both.share(0, 2, 14)
    assert held(both, 2) == dict(enumerate(TEXT[:14]))


def test_where_there_is_no_room_apart_it_comes_back_and_goes_on() -> None:
    both, one = begun(n_apart=16), SimulatedBackend(SETTINGS)
    decoded = both.decode([piece(0, 14, b"abc"), piece(1, 0, b"d")])
    assert both.n_apart == 0
    assert both.n_used == both.here.n_used == 18
    assert held(both, 0) == dict(enumerate(TEXT[:14] + b"abc"))
    assert held(both, 1) == dict(enumerate(b"d"))
    assert np.array_equal(decoded.logits(0), one.decode([piece(0, 0, TEXT[:14] + b"abc")]).logits(0))


def test_where_there_is_no_room_at_all_nothing_is_changed() -> None:
    both = begun(n_apart=16)
    both.decode([piece(1, 0, TEXT + TEXT[:8])])
    with pytest.raises(CacheFull):
        both.decode([piece(0, 14, b"abc"), piece(2, 0, b"d")])
    assert held(both, 0) == dict(enumerate(TEXT[:14]))
    assert held(both, 2) == {}


def test_where_there_is_no_room_apart_it_is_restored_here() -> None:
    both = begun(n_apart=16)
    both.decode([piece(1, 0, TEXT[:20])])
    assert both.restore(0, saved(both, 1), 14, 20)
    assert both.n_apart == 0
    assert held(both, 0) == dict(enumerate(TEXT[:20]))


def test_a_damaged_snapshot_leaves_it_as_it_was() -> None:
    both = begun()
    assert not both.restore(0, np.zeros(30, dtype=np.uint8), 14, 30)
    assert held(both, 0) == dict(enumerate(TEXT[:14]))
    assert next_row(both, 0, 14) == next_row(begun(), 0, 14)


def test_a_fault_names_the_sequence_by_the_number_it_has_here() -> None:
    both = pair()
    prompt = chat(("user", "FAIL:0"))
    tokens = both.tokenizer.tokenize(prompt, special=True, bos=False)
    assert both.set_apart(3, 0)
    assert both.set_apart(5, 0)
    with pytest.raises(SequenceFault) as caught:
        both.decode([Slice(5, 0, np.array(tokens, dtype=np.int32), wants_logits=True)])
    assert caught.value.seq == 5


def test_there_is_room_for_a_few() -> None:
    both = pair()
    assert [both.set_apart(seq, 0) for seq in range(SEQUENCES_APART + 1)] == [True] * SEQUENCES_APART + [False]
    assert both.set_apart(0, 0)
    both.drop(2)
    assert both.set_apart(SEQUENCES_APART, 0)


def test_what_finds_no_room_apart_stays_as_it_was() -> None:
    both = pair(n_apart=4)
    both.decode([piece(0, 0, TEXT[:9])])
    assert not both.set_apart(0, 9)
    assert both.n_apart == both.apart.n_used == 0
    assert held(both, 0) == dict(enumerate(TEXT[:9]))


# by the scheduler


def streaming(**options: object) -> tuple[Bench, SimulatedPair]:
    """A stream in the making."""
    b = bench(hash_mode=True, apart_tokens=APART_TOKENS, ram_bytes=1 << 20, hot_tokens=2000, **options)  # type: ignore[arg-type]
    b.submit(STREAM, owner=100, max_tokens=900)
    b.step()
    assert b.scheduler.stats().decoding_turns == 1
    assert isinstance(b.backend, SimulatedPair)
    return b, b.backend


def finish(b: Bench, turn: int) -> None:
    for _ in range(5000):
        if b.events[turn] and hasattr(b.events[turn][-1], "reason"):
            return
        b.step()
    raise AssertionError("the turn does not come to its end")


def alone(prompt: str, max_tokens: int = 30) -> str:
    b = bench(hash_mode=True)
    return b.text(b.ask(prompt, max_tokens=max_tokens))


def test_a_long_prompt_beside_a_stream_goes_apart_with_its_reply() -> None:
    b, backend = streaming()
    turn = b.submit(LONG, owner=1, max_tokens=30)
    b.step()
    assert backend.n_apart == 1
    finish(b, turn)
    assert backend.went == 1
    assert b.text(turn) == alone(LONG)
    b.check_accounts()


@pytest.mark.parametrize("case", ["short", "nobody streams"])
def test_others_do_not(case: str) -> None:
    b, backend = streaming()
    if case == "nobody streams":
        b.scheduler.cancel(0)
    turn = b.submit(LONG[: APART_TOKENS - 10] if case == "short" else LONG, owner=1, max_tokens=30)
    finish(b, turn)
    assert backend.went == 0


def test_what_comes_back_from_memory_beside_a_stream_does_so_apart() -> None:
    b, backend = streaming()
    first = b.submit(LONG, owner=1, max_tokens=30)
    finish(b, first)
    while b.scheduler.pool.of(OwnerId(1, 1)) is not None:
        b.step()
    used = backend.here.n_used
    turn = b.submit(LONG + "and more", owner=1, max_tokens=30)
    b.step()
    assert b.placed(turn).ram_tokens == len(LONG)
    assert backend.n_apart == 1
    assert backend.here.n_used <= used + 2
    finish(b, turn)
    assert b.text(turn) == alone(LONG + "and more")


def test_one_that_shares_a_running_prompt_brings_it_back() -> None:
    b, backend = streaming()
    turn = b.submit(LONG, owner=1, max_tokens=60)
    while b.scheduler.stats().decoding_turns < 2:
        b.step()
    other = b.submit(LONG + "and more", owner=2, max_tokens=30)
    finish(b, other)
    assert backend.came_back == 1
    assert b.placed(other).hot_tokens >= len(LONG)
    assert b.text(other) == alone(LONG + "and more")
    finish(b, turn)
    assert b.text(turn) == alone(LONG, 60)
    b.check_accounts()


def test_a_few_tokens_in_common_do_not_bring_it_back() -> None:
    b, backend = streaming()
    turn = b.submit(LONG, owner=1, max_tokens=60)
    while b.scheduler.stats().decoding_turns < 2:
        b.step()
    other = b.submit(LONG[:30] + "and more", owner=2, max_tokens=30)
    finish(b, other)
    assert backend.came_back == 0
    assert b.placed(other).hot_tokens == 0
    assert b.text(other) == alone(LONG[:30] + "and more")
    finish(b, turn)


def test_many_long_ones_that_share_do_not_hinder_each_other() -> None:
    """Copies of what they share fill the other context, while cells are counted once."""
    b, backend = streaming(n_cells=600, capacity=5)
    head = LONG[:122]
    finish(b, b.submit(head, owner=9, max_tokens=1))
    turns = [b.submit(head + chr(65 + i) * 110, owner=i, max_tokens=20) for i in range(3)]
    for turn in turns:
        finish(b, turn)
        assert b.text(turn) == alone(head + chr(65 + turns.index(turn)) * 110, 20)
    assert backend.went >= 3


class Stuck(SimulatedBackend):
    """Nothing can be copied out of it."""

    def snapshot(self, seq: int, start: int, allocate: Allocate, *, end: int | None = None) -> ByteArray | None:
        return None


@pytest.mark.parametrize("beside", [False, True])
def test_what_cannot_be_brought_back_is_computed_again_here(beside: bool) -> None:
    settings = SimulatedSettings(n_cells=2000, n_seq_max=6, hash_mode=True)
    stuck = Stuck(SimulatedSettings(n_cells=560, n_seq_max=SEQUENCES_APART, hash_mode=True))
    b, backend = streaming(backend=SimulatedPair(SimulatedBackend(settings), stuck))
    turn = b.submit(LONG, owner=1, max_tokens=100)
    b.step()
    assert backend.n_apart == 1
    if not beside:
        b.scheduler.cancel(0)
    finish(b, turn)
    assert b.text(turn) == alone(LONG, 100)
    assert (b.scheduler.stats().preemptions, b.scheduler.stats().faults) == (1, 0)
    b.check_accounts()


def test_a_chain_of_many_batches_stays_rather_than_be_copied() -> None:
    b, backend = streaming()
    said = b.submit("tell me", owner=1, max_tokens=50)
    finish(b, said)
    chain = b.scheduler.pool.of(OwnerId(1, 1))
    assert chain is not None
    prompt = bytes(chain.tokens.view.tolist()).decode() + LONG
    turn = b.submit(prompt, owner=1, max_tokens=1)
    b.step()
    assert b.placed(turn).hot_tokens > 32
    assert backend.went == 0


KINDS = {
    "bounded": (EngineConfig(kind=EngineKind.SIMULATED, max_inter_token_ms=50.0), True),
    "unbounded": (EngineConfig(kind=EngineKind.SIMULATED), False),
    "flat": (EngineConfig(kind=EngineKind.SIMULATED, max_inter_token_ms=50.0, flat=True), False),
}


@pytest.mark.parametrize("kind", KINDS)
def test_there_is_a_context_apart_where_gaps_are_bounded(kind: str) -> None:
    config, expected = KINDS[kind]
    backend = open_backend(config)
    assert backend.set_apart(0, 0) is expected
    backend.close()


@pytest.mark.parametrize(("can_truncate", "attention_window"), [(False, 0), (True, 16)])
def test_there_is_none_for_models_that_cannot_be_cut(can_truncate: bool, attention_window: int) -> None:
    facts = SimulatedSettings(can_truncate=can_truncate, attention_window=attention_window)
    backend = SimulatedBackend(facts)
    assert with_room_apart(backend, KINDS["bounded"][0], lambda: SimulatedBackend(facts)) is backend
