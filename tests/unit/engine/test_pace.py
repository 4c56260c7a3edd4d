from __future__ import annotations

from unit.engine.harness import bench, chat
from warmlane.engine.pace import SHORT_STEPS, SLICE_ALONE, SLICE_BESIDE_DECODE, Pace
from warmlane.engine.protocol import Chunk


def paced(*, max_gap_ms: float | None = None, decode_ms: float = 10.0, ms_per_token: float = 5.0) -> Pace:
    pace = Pace(n_batch=512, max_gap_ms=max_gap_ms)
    pace.observe(decode_rows=4, prefill_tokens=0, took_ms=decode_ms)
    pace.observe(decode_rows=4, prefill_tokens=10, took_ms=decode_ms + 10 * ms_per_token)
    return pace


def test_alone_a_slice_is_as_long_as_ever() -> None:
    assert paced().slice_length(decode_rows=0, short=False) == SLICE_ALONE
    assert paced(max_gap_ms=10).slice_length(decode_rows=0, short=False) == SLICE_ALONE


def test_a_short_prompt_takes_the_longest_slices_beside_others() -> None:
    assert paced().short == SHORT_STEPS * SLICE_BESIDE_DECODE
    assert paced().slice_length(decode_rows=4, short=True) == SLICE_BESIDE_DECODE
    assert paced(max_gap_ms=40).slice_length(decode_rows=4, short=True) == 6


def test_a_long_prompt_leaves_a_gap_of_some_decode_steps() -> None:
    assert paced(ms_per_token=2.0).slice_length(decode_rows=4, short=False) == 30
    assert paced(ms_per_token=50.0).slice_length(decode_rows=4, short=False) == 16
    assert paced(ms_per_token=0.01).slice_length(decode_rows=4, short=False) == SLICE_BESIDE_DECODE
    assert paced(decode_ms=0.1, ms_per_token=0.5).slice_length(decode_rows=4, short=False) == 39


def test_the_operator_may_ask_for_less() -> None:
    assert paced(max_gap_ms=50).slice_length(decode_rows=4, short=False) == 8
    assert paced(max_gap_ms=1).slice_length(decode_rows=4, short=False) == 1


def test_before_anything_was_measured_slices_are_short() -> None:
    assert Pace(n_batch=512).slice_length(decode_rows=1, short=False) == 16
    assert Pace(n_batch=512).prefill_ms_per_token is None
    assert Pace(n_batch=4).slice_length(decode_rows=1, short=False) == 3
    assert Pace(n_batch=4).slice_length(decode_rows=4, short=False) == 0


def test_prefill_cost_is_that_of_undisturbed_steps_once_known() -> None:
    pace = paced()
    assert pace.prefill_ms_per_token == 5.0
    pace.observe(decode_rows=0, prefill_tokens=100, took_ms=300.0)
    assert pace.prefill_ms_per_token == 3.0


def test_a_short_prompt_passes_a_long_prefill_every_second_step() -> None:
    b = bench(slice_alone=64, slice_beside_decode=64)
    long = b.submit(chat(("user", "EMIT:" + "l" * 1000)), max_tokens=1)
    for i in range(3):
        b.submit(chat(("user", f"{i} EMIT:s")), max_tokens=1)
    steps = 0
    while not any(isinstance(e, Chunk) for e in b.events[long]):
        b.step()
        steps += 1
    assert steps == -(-len(b.tokens(chat(("user", "EMIT:" + "l" * 1000)))) // 64) + 3
    assert b.order.index(long) < b.order.index(1) < b.order.index(2) < b.order.index(3)
    assert all(b.text(t) == "s" for t in (1, 2, 3))


def test_room_is_what_the_rows_alone_leave_of_the_gap() -> None:
    pace = paced(max_gap_ms=50)
    assert pace.room_ms(hurry=True) == 40.0
    pace.observe(decode_rows=4, prefill_tokens=0, took_ms=70.0, instead=True)
    assert pace.room_ms(hurry=True) == pace.room_ms(hurry=False) == -20.0
    assert pace.slice_length(decode_rows=4, short=False) == 8  # undisturbed steps are what they were
    assert paced().room_ms(hurry=True) == 60.0


def test_without_hurry_it_is_no_longer_than_a_step_either() -> None:
    assert paced(max_gap_ms=50).room_ms(hurry=False) == 10.0
    assert paced(max_gap_ms=13).room_ms(hurry=False) == 3.0
