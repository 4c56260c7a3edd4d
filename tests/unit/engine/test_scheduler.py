from __future__ import annotations

from collections.abc import Sequence

import pytest

from unit.engine.harness import DOMAIN, Bench, bench, chat
from warmlane.engine.backends.base import CacheFull, Decoded, DecodeFailed, Slice
from warmlane.engine.backends.simulated import SimulatedBackend, SimulatedSettings
from warmlane.engine.messages import FailureKind
from warmlane.engine.protocol import Chunk, EndReason, OwnerId, Placed
from warmlane.errors import ContextOverflow, EngineFault


def test_events_come_in_order_and_count_every_token() -> None:
    b = bench()
    turn = b.ask(chat(("user", "EMIT:a🌧b")))
    first, *chunks, last = b.events[turn]
    assert isinstance(first, Placed)
    assert all(isinstance(c, Chunk) for c in chunks)
    assert [c.text for c in chunks if isinstance(c, Chunk)] == ["a", "🌧", "b"]
    assert [c.n_tokens for c in chunks if isinstance(c, Chunk)] == [1, 4, 1]
    assert last == b.ended(turn)
    assert b.ended(turn).reason is EndReason.STOP
    assert b.ended(turn).output_tokens == 7
    assert bytes(b.ended(turn).token_ids).decode() == b.ended(turn).token_text == "a🌧b"


def test_a_second_turn_finds_prompt_and_reply_warm() -> None:
    b = bench()
    first = chat(("user", "hi"))
    one = b.ask(first, owner=1)
    second = chat(("user", "hi"), ("assistant", "echo: hi"), ("user", "again"))
    two = b.ask(second, owner=1)
    assert b.placed(two).cached_tokens == len(b.tokens(first)) + b.ended(one).output_tokens - 1
    assert b.text(two) == "echo: again"


def test_another_owner_of_the_domain_finds_it_warm_and_one_of_another_domain_does_not() -> None:
    b = bench()
    prompt = chat(("user", "hello"))
    b.ask(prompt, owner=1)
    assert b.placed(b.ask(prompt, owner=2)).cached_tokens == len(b.tokens(prompt)) - 1
    assert b.placed(b.ask(prompt, owner=3, domain=b"d" * 16)).cached_tokens == 0
    b.check_accounts()


def test_turns_run_side_by_side_up_to_capacity() -> None:
    b = bench(capacity=2)
    turns = [b.submit(chat(("user", f"EMIT:{n * 30}"))) for n in "xyz"]
    while not b.events[turns[1]]:
        b.step()
    b.step()
    assert b.scheduler.stats().decoding_turns == 2
    assert b.scheduler.stats().waiting_turns == 1
    assert not b.events[turns[2]]
    b.run()
    assert [b.text(t) for t in turns] == ["x" * 30, "y" * 30, "z" * 30]


def test_a_long_prefill_does_not_stop_a_stream() -> None:
    b = bench(slice_beside_decode=16)
    stream = b.submit(chat(("user", "EMIT:" + "s" * 60)))
    b.step()
    intruder = b.submit(chat(("user", "EMIT:" + "i" * 300)))
    produced = []
    while not any(isinstance(e, Chunk) for e in b.events[intruder]):
        before = len(b.text(stream))
        b.step()
        produced.append(len(b.text(stream)) - before)
    assert len(produced) > 300 // 16
    assert set(produced) == {1}


@pytest.mark.parametrize(
    ("options", "reason", "text", "output_tokens"),
    [
        ({"max_tokens": 3}, EndReason.LENGTH, "abc", 3),
        ({"stop": ("cd",)}, EndReason.STOP_SEQUENCE, "ab", 4),
        ({"stop": ("cX",)}, EndReason.STOP, "abcdef", 7),
        ({"max_tokens": 3, "stop": ("cd",)}, EndReason.LENGTH, "abc", 3),
        ({"max_tokens": 6}, EndReason.LENGTH, "abcdef", 6),
        ({"max_tokens": 0}, EndReason.LENGTH, "", 0),
    ],
)
def test_ends_stop_the_engine_at_once(
    options: dict[str, object], reason: EndReason, text: str, output_tokens: int
) -> None:
    b = bench()
    turn = b.ask(chat(("user", "EMIT:abcdef")), **options)
    ended = b.ended(turn)
    assert (ended.reason, b.text(turn), ended.output_tokens) == (reason, text, output_tokens)
    assert b.scheduler.stats().output_tokens == output_tokens
    assert ended.stop_sequence == ("cd" if reason is EndReason.STOP_SEQUENCE else None)
    assert ended.token_text == text[: len(ended.token_ids)]


def test_generation_ends_at_the_window() -> None:
    b = bench(n_cells=64)
    prompt = chat(("user", "EMIT:" + "x" * 25))
    turn = b.ask(prompt)
    assert b.ended(turn).reason is EndReason.LENGTH
    assert len(b.tokens(prompt)) + b.ended(turn).output_tokens == 64


def test_a_prompt_that_can_never_fit_is_refused_with_the_numbers() -> None:
    b = bench(n_cells=64)
    error = b.failed(b.ask("x" * 64)).error()
    assert isinstance(error, ContextOverflow)
    assert (error.prompt_tokens, error.limit) == (64, 64)
    assert b.text(b.ask("x" * 63, max_tokens=5))


@pytest.mark.parametrize(
    ("prompt", "kind"), [((), FailureKind.INVALID), ((1, 999), FailureKind.FAULT), ((-1,), FailureKind.FAULT)]
)
def test_prompts_that_make_no_sense_are_refused(prompt: tuple[int, ...], kind: FailureKind) -> None:
    b = bench()
    assert b.failed(b.ask(prompt)).kind is kind


def test_one_conversation_runs_one_turn() -> None:
    b = bench()
    one, two = (b.submit(chat(("user", "hi")), owner=1) for _ in range(2))
    b.run()
    assert b.text(one) == "echo: hi"
    assert isinstance(b.failed(two).error(), EngineFault)


def test_a_cancelled_prefill_leaves_what_it_computed() -> None:
    b = bench(n_batch=16)
    prompt = chat(("user", "EMIT:" + "x" * 100))
    turn = b.submit(prompt, owner=1)
    b.step()
    b.step()
    b.scheduler.cancel(turn)
    b.run()
    assert len(b.events[turn]) == 1
    again = b.ask(prompt, owner=1)
    assert b.placed(again).cached_tokens == 32
    b.check_accounts()


def test_a_cancelled_stream_is_gone_from_the_next_step_and_stays_warm() -> None:
    b = bench()
    prompt = chat(("user", "EMIT:abcdef"))
    turn = b.submit(prompt, owner=1)
    b.step()
    b.step()
    b.scheduler.cancel(turn)
    assert not b.scheduler.has_work
    assert b.scheduler.truncate(OwnerId(1, 1), len(b.tokens(prompt)))
    assert b.placed(b.ask(prompt + "abc", owner=1)).cached_tokens == len(b.tokens(prompt))


def test_cancelling_a_waiting_or_unknown_turn_is_quiet() -> None:
    b = bench(capacity=1)
    first, second = b.submit(chat(("user", "hi"))), b.submit(chat(("user", "ho")))
    b.scheduler.cancel(second)
    b.scheduler.cancel(99)
    b.run()
    assert b.text(first) == "echo: hi"
    assert not b.events[second]


def test_nothing_is_said_of_a_turn_after_its_cancellation() -> None:
    b = bench()
    refused = b.submit(())
    b.scheduler.cancel(refused)
    b.run()
    assert not b.events[refused]


def test_releasing_a_running_owner_fails_its_turn_only() -> None:
    b = bench()
    one, two = b.submit(chat(("user", "EMIT:" + "a" * 30)), owner=1), b.submit(chat(("user", "hi")), owner=2)
    b.step()
    b.step()
    b.scheduler.release(OwnerId(1, 1), purge=True)
    b.run()
    assert b.failed(one).kind is FailureKind.FAULT
    assert b.text(two) == "echo: hi"


def test_truncate_of_an_unknown_owner_holds_trivially() -> None:
    assert bench().scheduler.truncate(OwnerId(1, 77), 3)


def test_when_cells_run_out_the_newest_turn_starts_over_and_repeats_nothing() -> None:
    b = bench(n_cells=120, capacity=2)
    one, two = (b.submit(chat(("user", f"EMIT:{c * 40}")), owner=i) for i, c in enumerate("xy"))
    b.run()
    assert b.scheduler.stats().preemptions >= 1
    assert (b.text(one), b.text(two)) == ("x" * 40, "y" * 40)
    assert sum(isinstance(e, Placed) for e in b.events[two]) == 1
    b.check_accounts()


def test_warm_conversations_give_way_to_a_turn_that_needs_their_cells() -> None:
    b = bench(n_cells=128)
    for owner in range(5):
        b.ask(chat(("user", f"{owner} EMIT:done")), owner=owner)
    turn = b.ask(chat(("user", "EMIT:" + "x" * 30)), owner=9)
    assert b.text(turn) == "x" * 30
    assert b.scheduler.stats().evictions > 0
    b.check_accounts()


def test_flat_reuses_for_the_same_owner_only_and_reset_empties() -> None:
    b = bench(flat=True, capacity=8)
    prompt = chat(("user", "hi"))
    b.ask(prompt, owner=1)
    assert b.placed(b.ask(prompt, owner=1)).cached_tokens == len(b.tokens(prompt)) - 1
    assert b.placed(b.ask(prompt, owner=2)).cached_tokens == 0
    b.scheduler.reset()
    assert b.backend.n_used == 0
    assert b.placed(b.ask(prompt, owner=2)).cached_tokens == 0
    turns = [b.submit(prompt, owner=i) for i in (3, 4)]
    b.step()
    assert b.scheduler.stats().waiting_turns == 1
    b.run()
    assert [b.text(t) for t in turns] == ["echo: hi", "echo: hi"]


def test_a_paged_engine_ignores_reset() -> None:
    b = bench()
    b.ask(chat(("user", "hi")))
    b.scheduler.reset()
    assert b.backend.n_used > 0


def test_a_backend_that_cannot_cut_still_answers_right() -> None:
    b = bench(can_truncate=False)
    history = [("user", "hi")]
    for _ in range(3):
        turn = b.ask(chat(*history), owner=1)
        assert b.text(turn) == f"echo: {history[-1][1]}"
        history += [("assistant", b.text(turn)), ("user", "more")]
    assert b.text(b.ask(chat(("user", "ho")), owner=1)) == "echo: ho"
    b.check_accounts()


class FaultyBackend(SimulatedBackend):
    """Fails every batch that holds a token of `poison`, half-way through; and is full now and then."""

    def __init__(self) -> None:
        super().__init__(SimulatedSettings(n_cells=4096, n_seq_max=8))
        self.poison = ord("~")
        self.full = 0

    def decode(self, slices: Sequence[Slice]) -> Decoded:
        if self.full:
            self.full -= 1
            raise CacheFull
        if any(self.poison in s.tokens for s in slices):
            super().decode([Slice(slices[0].seq, slices[0].position, slices[0].tokens, wants_logits=False)])
            raise DecodeFailed("poison")
        return super().decode(slices)


def faulty() -> tuple[Bench, FaultyBackend]:
    backend = FaultyBackend()
    return bench(backend=backend), backend


def test_a_batch_that_fails_fails_only_the_turn_at_fault() -> None:
    b, _ = faulty()
    good = b.submit(chat(("user", "EMIT:" + "g" * 30)))
    b.step()
    bad = b.submit(chat(("user", "~")))
    b.run()
    assert b.text(good) == "g" * 30
    assert "poison" in b.failed(bad).message
    b.check_accounts()


def test_a_full_cache_evicts_and_then_preempts_and_then_fails_the_turn() -> None:
    b, backend = faulty()
    b.ask(chat(("user", "idle")), owner=1)
    turn = b.submit(chat(("user", "hi")), owner=2)
    backend.full = 1
    b.run()
    assert b.text(turn) == "echo: hi"
    assert b.scheduler.stats().evictions == 1
    doomed = b.submit(chat(("user", "ho")), owner=3)
    backend.full = 1000
    b.run()
    assert b.failed(doomed).kind is FailureKind.FAULT


def test_stats_count_hits_and_cells() -> None:
    b = bench()
    b.ask(chat(("user", "hi")), owner=1, domain=DOMAIN)
    b.ask(chat(("user", "hi")), owner=2, domain=DOMAIN)
    stats = b.scheduler.stats()
    assert (stats.placed_turns, stats.prefix_hits) == (2, 1)
    assert stats.cached_tokens == stats.prompt_tokens // 2 - 1
    assert stats.cells_running + stats.cells_owned + stats.cells_idle == b.backend.n_used
    assert stats.steps > 0
