"""Whatever happens around a turn, its output is that of the turn alone.

The simulated backend's tokens are a hash of the cells a sequence sees, so one wrong cell anywhere breaks the equality.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from hypothesis import given, settings
from hypothesis import strategies as st

from unit.engine.harness import Bench, bench
from warmlane.engine.messages import TurnFailed
from warmlane.engine.protocol import Ended, OwnerId, Placed, SamplingParams

N_CELLS = 160
STEMS = ("the quick brown fox jumps over ", "the quick red fox ", "lorem ipsum dolor sit amet " * 2)
TAILS = ("", "the lazy dog", "nothing at all, and then some more", "x")
PROMPTS = tuple(stem + tail for stem in STEMS for tail in TAILS)
DOMAINS = (b"a" * 16, b"b" * 16)

GRAMMARS = (
    None,
    None,
    'start: %json {"type":"object","properties":{"a":{"type":"string"},"b":{"type":"integer"}},"required":["a","b"]}',
    r'start: "<" /[!-~]{3,}/ ">"',
)
submits = st.tuples(
    st.just("submit"),
    st.sampled_from(PROMPTS),
    st.integers(0, 5),
    st.sampled_from(DOMAINS),
    st.integers(0, 40),
    st.sampled_from((None, 1, 2)),
    st.sampled_from(GRAMMARS),
    st.booleans(),
    st.booleans(),
)
actions = st.one_of(
    submits,
    submits,
    st.tuples(st.just("step"), st.integers(1, 12)),
    st.tuples(st.just("cancel"), st.integers(0, 30)),
    st.tuples(st.just("release"), st.integers(0, 5), st.booleans()),
    st.tuples(st.just("compile")),
    st.tuples(st.just("truncate"), st.integers(0, 5), st.integers(0, 60)),
)


def sampling(seed: int | None) -> SamplingParams:
    return SamplingParams(temperature=0.0) if seed is None else SamplingParams(temperature=1.0, seed=seed)


@dataclass(frozen=True, slots=True)
class Asked:
    prompt: str
    domain: bytes
    max_tokens: int
    seed: int | None
    grammar: str | None

    @property
    def answer(self) -> str:
        return alone(self.prompt, self.max_tokens, self.seed, self.grammar)


@cache
def alone(prompt: str, max_tokens: int, seed: int | None, grammar: str | None = None) -> str:
    b = bench(n_cells=N_CELLS, hash_mode=True)
    return b.text(b.ask(prompt, max_tokens=max_tokens, sampling=sampling(seed), grammar=grammar))


def play(b: Bench, script: list[tuple], capacity: int) -> dict[int, Asked]:
    asked = {}
    for action in script:
        match action:
            case ("submit", prompt, owner, domain, max_tokens, seed, grammar, compile_now, spare):
                turn = b.submit(
                    prompt,
                    owner=owner,
                    domain=domain,
                    max_tokens=max_tokens,
                    sampling=sampling(seed),
                    grammar=grammar,
                    compile_now=compile_now,
                    spare=spare,
                )
                asked[turn] = Asked(prompt, domain, max_tokens, seed, grammar)
            case ("compile",):
                b.compile()
            case ("step", n):
                for _ in range(n):
                    b.step()
            case ("cancel", turn):
                b.scheduler.cancel(turn)
            case ("release", owner, purge):
                b.scheduler.release(OwnerId(1, owner), purge=purge)
            case ("truncate", owner, length):
                assert b.scheduler.truncate(OwnerId(1, owner), length)
        b.check_accounts()
        stats = b.scheduler.stats()
        assert stats.decoding_turns + stats.prefilling_turns <= capacity
    b.compile()
    b.run()
    return asked


@settings(max_examples=150, deadline=None)
@given(script=st.lists(actions, max_size=40), capacity=st.integers(1, 4), n_batch=st.sampled_from((7, 32)))
def test_every_turn_says_what_it_says_alone(script: list[tuple], capacity: int, n_batch: int) -> None:
    b = bench(n_cells=N_CELLS, n_seq_max=5, capacity=capacity, n_batch=n_batch, hash_mode=True)
    asked = play(b, script, capacity)
    for turn, request in asked.items():
        events = b.events[turn]
        expected = request.answer
        if events and isinstance(events[-1], Ended):
            assert b.text(turn) == expected
        else:
            assert expected.startswith(b.text(turn))
        assert sum(isinstance(e, Placed) for e in events) <= 1
        assert sum(isinstance(e, Ended | TurnFailed) for e in events) <= 1
        if any(isinstance(e, Placed) for e in events):
            assert b.placed(turn).cached_tokens <= longest_known(asked, turn)
    b.check_accounts()
    for owner in range(6):
        b.scheduler.release(OwnerId(1, owner), purge=True)
    while b.scheduler.pool.evict_one():
        pass
    assert b.backend.n_used == b.scheduler.pool.table.n_used == len(b.scheduler.pool) == 0


def longest_known(asked: dict[int, Asked], turn: int) -> int:
    """The longest prefix of the turn's prompt that any other turn of the domain may have computed."""
    prompt, best = asked[turn].prompt, 0
    for other, request in asked.items():
        if other != turn and request.domain == asked[turn].domain:
            known = request.prompt + request.answer
            n = next((i for i, (a, b) in enumerate(zip(known, prompt, strict=False)) if a != b), None)
            best = max(best, min(len(known), len(prompt)) if n is None else n)
    return min(best, len(prompt) - 1)
