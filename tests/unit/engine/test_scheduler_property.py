"""Whatever happens around a turn, its output is that of the turn alone, and it comes to its end.

The simulated backend's tokens are a hash of the cells a sequence sees, so one wrong cell anywhere breaks the equality.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from unit.engine.harness import SimulatedPair, bench
from unit.engine.ledger import DOMAINS, GRAMMARS, N_CELLS, PROMPTS, TOO_LONG, Asked, Ledger

N_EXAMPLES = 100
OWNERS = st.integers(0, 7)

requests = st.builds(
    Asked,
    prompt=st.sampled_from((*PROMPTS, *PROMPTS, TOO_LONG)),
    owner=OWNERS,
    domain=st.sampled_from(DOMAINS),
    max_tokens=st.sampled_from((60, 60, 20, 1, 0)),
    seed=st.sampled_from((None, 1)),
    grammar=st.sampled_from((None, None, *GRAMMARS)),
    spare=st.booleans(),
)
actions = st.one_of(
    st.tuples(st.just("step"), st.integers(1, 60)),
    st.tuples(st.just("crowd"), st.lists(requests, min_size=2, max_size=5), st.integers(1, 60)),
    st.tuples(st.just("crowd"), st.lists(requests, min_size=2, max_size=5), st.integers(1, 60)),
    st.tuples(st.just("ask"), requests, st.booleans()),
    st.tuples(st.just("cancel"), st.integers(0, 30)),
    st.tuples(st.just("release"), OWNERS, st.booleans()),
    st.tuples(st.just("compile")),
    st.tuples(st.just("truncate"), OWNERS, st.integers(0, 60)),
)


def play(ledger: Ledger, action: tuple) -> None:
    match action:
        case ("ask", asked, compile_now):
            ledger.ask(asked, compile_now=compile_now)
        case ("crowd", crowd, n):
            for place, asked in enumerate(crowd):
                ledger.ask(replace(asked, owner=(crowd[0].owner + place) % 8))
            ledger.step(n)
        case ("step", n):
            ledger.step(n)
        case ("cancel", turn):
            ledger.cancel(turn)
        case ("release", owner, purge):
            ledger.release(owner, purge=purge)
        case ("truncate", owner, length):
            assert ledger.truncate(owner, length)
        case ("compile",):
            ledger.bench.compile()


def scripts_are_played(n_examples: int) -> Counter[str]:
    """Plays so many scripts. Returns what happened in all of them, and how often."""
    tally: Counter[str] = Counter()

    @settings(max_examples=n_examples, deadline=None)
    @given(
        script=st.lists(actions, min_size=5, max_size=30),
        capacity=st.sampled_from((1, 2, 3, 4, 4)),
        n_batch=st.sampled_from((7, 32)),
        hot_tokens=st.sampled_from((None, 0, 40)),
        apart_tokens=st.sampled_from((None, 8)),
    )
    def plays(
        script: list[tuple], capacity: int, n_batch: int, hot_tokens: int | None, apart_tokens: int | None
    ) -> None:
        b = bench(
            n_cells=N_CELLS,
            n_seq_max=5,
            capacity=capacity,
            n_batch=n_batch,
            hash_mode=True,
            hot_tokens=hot_tokens,
            apart_tokens=apart_tokens,
        )
        ledger = Ledger(b)
        for action in script:
            play(ledger, action)
            ledger.check_accounts()
            stats = b.scheduler.stats()
            assert stats.decoding_turns + stats.prefilling_turns <= capacity
        ledger.run()
        stats = b.scheduler.stats()
        tally.update(preemptions=stats.preemptions, evictions=stats.evictions, hits=stats.prefix_hits)
        if isinstance(b.backend, SimulatedPair):
            tally.update(apart=b.backend.went)
        tally.update(fate.name for fate in ledger.fates.values())
        ledger.check_end()

    plays()
    return tally


def test_every_turn_says_what_it_says_alone() -> None:
    tally = scripts_are_played(N_EXAMPLES)
    least = {"preemptions": 0.2, "evictions": 1, "REPLIES": 2, "apart": 0.1}
    assert all(tally[what] >= share * N_EXAMPLES for what, share in least.items()), tally


def test_one_that_is_too_long_may_be_cancelled_before_it_is_told() -> None:
    ledger = Ledger(bench(n_cells=N_CELLS, hash_mode=True))
    ledger.cancel(ledger.ask(Asked(prompt=TOO_LONG)))
    ledger.run()
    ledger.check_end()
