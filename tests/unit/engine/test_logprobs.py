from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unit.engine.harness import Bench, bench, chat
from warmlane.conversation.tools import TokenLogprob
from warmlane.engine.backends.bytes_vocab import N_VOCAB, ByteTokenizer
from warmlane.engine.logprobs import LEAST_LOGPROB, measure
from warmlane.engine.protocol import Chunk, SamplingParams

TOKENIZER = ByteTokenizer()


def row(**known: float) -> np.ndarray:
    values = np.full(N_VOCAB, -np.inf, dtype=np.float32)
    for name, value in known.items():
        values[ord(name)] = value
    return values


def logprobs(b: Bench, turn: int) -> list[TokenLogprob]:
    return [entry for e in b.events[turn] if isinstance(e, Chunk) for entry in e.logprobs]


def test_they_are_natural_and_sum_to_one() -> None:
    found = measure(ord("b"), b"b", row(a=np.log(0.5), b=np.log(0.3), c=np.log(0.2)) + 7, TOKENIZER, 3)
    assert (found.token, found.data) == ("b", b"b")
    assert found.logprob == pytest.approx(np.log(0.3), abs=1e-6)
    assert [t.token for t in found.top] == ["a", "b", "c"]
    assert sum(np.exp(t.logprob) for t in found.top) == pytest.approx(1.0)


@pytest.mark.parametrize("n_top", [0, 1, N_VOCAB, N_VOCAB + 9])
def test_as_many_others_as_there_are(n_top: int) -> None:
    values = np.random.default_rng(0).normal(size=N_VOCAB).astype(np.float32)
    top = measure(5, b"\x05", values, TOKENIZER, n_top).top
    assert len(top) == min(n_top, N_VOCAB)
    assert [t.logprob for t in top] == sorted((t.logprob for t in top), reverse=True)
    if n_top:
        assert top[0].data == TOKENIZER.piece(int(values.argmax()), special=True)


def test_the_impossible_has_a_number() -> None:
    found = measure(ord("b"), b"b", row(a=0.0), TOKENIZER, 2)
    assert found.logprob == LEAST_LOGPROB
    assert found.top[1].logprob == LEAST_LOGPROB


def test_none_come_unasked() -> None:
    b = bench()
    assert logprobs(b, b.ask(chat(("user", "hi")))) == []
    assert [t.token for t in logprobs(b, b.ask(chat(("user", "hi")), top_logprobs=0))] == list("echo: hi")


def test_neither_temperature_nor_penalty_nor_grammar_changes_them() -> None:
    b = bench(hash_mode=True)
    plain = logprobs(b, b.ask("prompt", max_tokens=1, top_logprobs=4))[0]
    changed = SamplingParams(temperature=2.0, top_k=1, seed=3, presence_penalty=1.0)
    assert logprobs(b, b.ask("prompt", max_tokens=1, top_logprobs=4, sampling=changed))[0] == plain
    forced = logprobs(b, b.ask("prompt", max_tokens=1, top_logprobs=4, grammar='start: "~"'))[0]
    assert forced.token == "~"
    assert forced.top == plain.top
    assert forced.logprob < plain.logprob


def test_a_control_token_has_some_only_where_it_is_text() -> None:
    b = bench()
    grammar = 'start: "a" <|im_start|> "b"'
    assert [t.token for t in logprobs(b, b.ask("x", grammar=grammar, top_logprobs=0))] == ["a", "b"]
    spelled = b.ask("x", grammar='start: "a<|im_start|>b"', special_text=True, top_logprobs=0)
    assert "".join(t.token for t in logprobs(b, spelled)) == "a<|im_start|>b"


@settings(max_examples=80, deadline=None)
@given(
    said=st.text(alphabet="abé🌧", max_size=20),
    stop=st.lists(st.text(alphabet="abé🌧", min_size=1, max_size=4), max_size=2).map(tuple),
    max_tokens=st.integers(1, 60),
)
def test_each_chunk_carries_the_tokens_that_are_whole_with_it(
    said: str, stop: tuple[str, ...], max_tokens: int
) -> None:
    b = bench()
    turn = b.ask(chat(("user", f"EMIT:{said}")), stop=stop, max_tokens=max_tokens, top_logprobs=1)
    text, data = "", b""
    for event in b.events[turn]:
        if isinstance(event, Chunk):
            text += event.text
            data += b"".join(t.data for t in event.logprobs)
            assert text.encode() == data
    ended = b.ended(turn)
    assert data == ended.token_text.encode() == bytes(t for t in ended.token_ids if t < 256)
