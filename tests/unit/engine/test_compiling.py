"""Which grammars are compiled, in which order, and what of turns that are over."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pytest

from unit.engine.harness import DOMAIN, chat
from warmlane.engine.assembly import assemble
from warmlane.engine.backends.bytes_vocab import ByteTokenizer
from warmlane.engine.compiling import GrammarQueue
from warmlane.engine.config import EngineConfig, EngineKind
from warmlane.engine.grammar import Constraint, GrammarError, Grammars
from warmlane.engine.messages import FailureKind, TurnFailed, TurnOutput
from warmlane.engine.protocol import Ended, GenerateRequest, OwnerId, SamplingParams
from warmlane.engine.thread import DecodeThread

WAIT_S = 30.0


class Held(Grammars):
    """Compiles a grammar once the test has let it go on; notes what it was asked for."""

    def __init__(self) -> None:
        super().__init__(ByteTokenizer())
        self.asked: list[str] = []
        self.entered = threading.Semaphore(0)
        self.gates: dict[str, threading.Event] = {}

    def hold(self, *grammars: str) -> None:
        self.gates |= {grammar: threading.Event() for grammar in grammars}

    def compile(self, grammar: str, *, special_text: bool = False) -> Constraint:
        self.asked.append(grammar)
        self.entered.release()
        if grammar in self.gates:
            assert self.gates[grammar].wait(WAIT_S)
        return super().compile(grammar, special_text=special_text)


class Results:
    """What came of the turns, in order."""

    def __init__(self) -> None:
        self.turns: list[tuple[int, Constraint | GrammarError]] = []
        self._came = threading.Semaphore(0)

    def __call__(self, turn: int, outcome: Constraint | GrammarError) -> None:
        self.turns.append((turn, outcome))
        self._came.release()

    def wait(self, n: int) -> None:
        for _ in range(n):
            assert self._came.acquire(timeout=WAIT_S)


def said(word: str) -> str:
    return f'start: "{word}"'


@pytest.fixture
def held() -> Held:
    return Held()


@pytest.fixture
def results() -> Results:
    return Results()


@pytest.fixture
def queue(held: Held, results: Results) -> Iterator[GrammarQueue]:
    made = GrammarQueue(lambda g, special: held.compile(g, special_text=special), results, compilers=1)
    made.start()
    yield made
    for gate in held.gates.values():
        gate.set()
    made.close()


def begin(queue: GrammarQueue, held: Held, turn: int, word: str) -> None:
    """Submit a grammar that is held, and wait until it is being compiled."""
    held.hold(said(word))
    queue.submit(turn, said(word), special_text=False)
    assert held.entered.acquire(timeout=WAIT_S)


def test_a_turn_that_is_over_before_its_grammar_was_begun_costs_nothing(
    queue: GrammarQueue, held: Held, results: Results
) -> None:
    begin(queue, held, 0, "first")
    for turn in range(1, 5):
        queue.submit(turn, said(str(turn)), special_text=False)
    for turn in (1, 3):
        queue.drop(turn)
    assert len(queue) == 2
    held.gates[said("first")].set()
    results.wait(3)
    assert [turn for turn, _ in results.turns] == [0, 2, 4]
    assert held.asked == [said(word) for word in ("first", "2", "4")]


def test_turns_that_come_and_go_leave_nothing_in_the_queue(queue: GrammarQueue, held: Held) -> None:
    begin(queue, held, 0, "long")
    for turn in range(1, 1000):
        queue.submit(turn, said("x" * 1000), special_text=False)
        queue.drop(turn)
    assert len(queue) == 0


def test_the_end_of_a_turn_whose_grammar_is_being_compiled_changes_nothing(
    queue: GrammarQueue, held: Held, results: Results
) -> None:
    begin(queue, held, 0, "first")
    queue.drop(0)
    queue.submit(1, "no grammar", special_text=False)
    held.gates[said("first")].set()
    results.wait(2)
    assert [type(outcome) for _, outcome in results.turns] == [Constraint, GrammarError]


def test_a_fault_of_the_compiler_is_the_turns_error_and_the_next_is_compiled(results: Results) -> None:
    def compile_grammar(grammar: str, special_text: bool) -> Constraint:
        raise ZeroDivisionError

    queue = GrammarQueue(compile_grammar, results, compilers=1)
    queue.submit(0, "a", special_text=False)
    queue.submit(1, "b", special_text=False)
    queue.start()
    results.wait(2)
    queue.close()
    assert [(turn, str(outcome)) for turn, outcome in results.turns] == [
        (turn, "The grammar could not be compiled.") for turn in (0, 1)
    ]


def test_at_its_end_nothing_more_is_begun_or_taken(queue: GrammarQueue, held: Held, results: Results) -> None:
    begin(queue, held, 0, "first")
    queue.submit(1, said("second"), special_text=False)
    closing = threading.Thread(target=queue.close)
    closing.start()
    while len(queue):
        pass
    held.gates[said("first")].set()
    closing.join(WAIT_S)
    queue.submit(2, said("third"), special_text=False)
    assert [turn for turn, _ in results.turns] == [0]
    assert len(queue) == 0


class Heard:
    """What a decode thread said of its turns."""

    def __init__(self) -> None:
        self.events: dict[int, list[object]] = {}
        self._changed = threading.Condition()

    def __call__(self, outputs: list[TurnOutput]) -> None:
        with self._changed:
            for output in outputs:
                self.events.setdefault(output.turn, []).append(output.event)
            self._changed.notify_all()

    def last(self, turn: int) -> object:
        with self._changed:
            assert self._changed.wait_for(lambda: self._ended(turn), WAIT_S)
            return self.events[turn][-1]

    def _ended(self, turn: int) -> bool:
        return bool(self.events.get(turn)) and isinstance(self.events[turn][-1], Ended | TurnFailed)


def request(owner: int, word: str, *, grammar: str | None = None) -> GenerateRequest:
    return GenerateRequest(
        owner=OwnerId(1, owner),
        domain=DOMAIN,
        prompt=tuple(ByteTokenizer().tokenize(chat(("user", "hi")), special=True, bos=True)),
        sampling=SamplingParams(temperature=0.0),
        max_tokens=50,
        grammar=grammar or said(word),
    )


def test_turns_that_were_cancelled_or_have_failed_are_never_compiled() -> None:
    held, heard = Held(), Heard()
    config = EngineConfig(kind=EngineKind.SIMULATED, model_name="m")
    thread = DecodeThread(
        lambda: replace(assemble(config, 1), grammars=held), on_outputs=heard, on_death=partial(pytest.fail)
    )
    thread.start().result(WAIT_S)
    held.hold(said("a"), said("b"))
    for turn, word in enumerate("ab"):
        thread.submit(turn, request(turn, word))
        assert held.entered.acquire(timeout=WAIT_S)
    for turn, word in enumerate("cdefg", 2):
        thread.submit(turn, request(turn, word))
    thread.cancel(3)
    thread.cancel(5)
    thread.post(lambda scheduler: scheduler.release(OwnerId(1, 4), purge=True))
    failed = heard.last(4)
    assert isinstance(failed, TurnFailed)
    assert failed.kind is FailureKind.FAULT
    for gate in held.gates.values():
        gate.set()
    assert all(isinstance(heard.last(turn), Ended) for turn in (0, 1, 2, 6))
    assert sorted(held.asked) == [said(word) for word in "abcg"]
    assert heard.events.keys() == {0, 1, 2, 4, 6}
    thread.stop()
    thread.join(WAIT_S)
