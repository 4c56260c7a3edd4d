"""Spare turns: they run where no other wants the seat or the cells, and compute nothing of a shared prompt anew."""

from __future__ import annotations

from unit.engine.harness import Bench, bench, chat
from warmlane.engine.protocol import Placed, SamplingParams

PROMPT = "tell me of the rain, and then of the sea"


def decoding(b: Bench) -> int:
    return b.scheduler.stats().decoding_turns


def warm(seed: int) -> SamplingParams:
    return SamplingParams(temperature=1.0, seed=seed)


def step_until_decoding(b: Bench, n: int) -> None:
    for _ in range(100):
        if decoding(b) == n:
            return
        b.step()
    raise AssertionError(f"{decoding(b)} turns decode, not {n}")


def test_spare_turns_fill_the_seats_that_are_free() -> None:
    b = bench(hash_mode=True, capacity=3)
    b.submit(PROMPT, max_tokens=50)
    for _ in range(4):
        b.submit(PROMPT, max_tokens=50, spare=True)
    step_until_decoding(b, 3)
    b.run()
    assert [b.ended(turn).output_tokens for turn in range(5)] == [50] * 5


def test_a_spare_turn_gives_its_seat_back_and_goes_on_later() -> None:
    b = bench(hash_mode=True, capacity=2)
    alone = bench(hash_mode=True)
    expected = alone.text(alone.ask(PROMPT, max_tokens=60, sampling=warm(1)))
    spare = b.submit(PROMPT, max_tokens=60, sampling=warm(1), spare=True)
    other = b.submit("another question", max_tokens=30, spare=True)
    step_until_decoding(b, 2)
    wanted = [b.submit("the first to want it", max_tokens=20), b.submit("the second", max_tokens=20)]
    b.run()
    ends = [turn for index, turn in enumerate(b.order) if turn not in b.order[index + 1 :]]
    assert ends == [*wanted, other, spare]
    assert b.text(spare) == expected
    assert b.scheduler.stats().preemptions == 2
    assert sum(isinstance(event, Placed) for event in b.events[spare]) == 1


def test_the_newest_spare_turn_gives_way_first_and_only_as_many_as_are_wanted() -> None:
    b = bench(hash_mode=True, capacity=3)
    b.submit(PROMPT, max_tokens=80)
    old, new = (b.submit(PROMPT, max_tokens=80, spare=True) for _ in range(2))
    step_until_decoding(b, 3)
    b.submit("a short one", max_tokens=3)
    said = [len(b.text(turn)) for turn in (old, new)]
    for _ in range(3):
        b.step()
    assert len(b.text(old)) > said[0]
    assert len(b.text(new)) == said[1]
    b.run()


def test_spare_turns_are_served_behind_all_others() -> None:
    b = bench(hash_mode=True, capacity=1)
    first = b.submit(PROMPT, max_tokens=5)
    spare = b.submit(PROMPT, max_tokens=5, spare=True)
    later = b.submit("something else", max_tokens=5)
    b.run()
    assert [b.order.index(turn) for turn in (first, later, spare)] == sorted(
        b.order.index(turn) for turn in (first, later, spare)
    )


def test_a_spare_turn_gives_its_cells_to_one_that_is_not() -> None:
    b = bench(hash_mode=True, n_cells=160, capacity=3)
    first = b.submit("x" * 40, max_tokens=20)
    spare = b.submit("y" * 60, max_tokens=20, spare=True)
    step_until_decoding(b, 2)
    wanted = b.submit("z" * 70, max_tokens=20)
    b.run()
    ends = [turn for index, turn in enumerate(b.order) if turn not in b.order[index + 1 :]]
    assert ends == [first, wanted, spare]
    assert b.scheduler.stats().preemptions == 1
    b.check_accounts()


def test_where_cells_run_out_it_is_a_spare_turn_that_starts_over() -> None:
    b = bench(hash_mode=True, n_cells=100, capacity=3)
    spare = b.submit("y" * 30, max_tokens=30, spare=True)
    step_until_decoding(b, 1)
    kept = b.submit("z" * 30, max_tokens=30)
    b.run()
    assert b.order.index(kept) < len(b.order) - 1 - b.order[::-1].index(spare)
    assert b.order[-1] == spare
    assert (b.ended(spare).output_tokens, b.ended(kept).output_tokens) == (30, 30)
    b.check_accounts()


def test_a_prompt_however_short_is_computed_once() -> None:
    """A turn that is not spare would rather compute a few tokens than wait for them."""
    for text in ("hi", "x" * 12, PROMPT):
        b = bench(capacity=4)
        prompt = chat(("user", text))
        n = len(b.tokens(prompt))
        b.submit(prompt)
        for _ in range(3):
            b.submit(prompt, spare=True)
        b.run()
        assert [b.placed(turn).cached_tokens for turn in range(4)] == [0, n - 1, n - 1, n - 1]
        assert b.scheduler.stats().prompt_tokens == n
        assert b.scheduler.stats().cached_tokens == 0
