from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unit.engine.harness import GRAMMARS, bench, chat
from warmlane.engine.backends.bytes_vocab import IM_END, IM_START, ByteTokenizer
from warmlane.engine.grammar import MAX_GRAMMAR_CHARS, Constraint, GrammarError, GrammarFault, Grammars
from warmlane.engine.messages import FailureKind
from warmlane.engine.protocol import EndReason, SamplingParams

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
BO = '{"name": "Bo", "age": 3}'


def held_to(schema: object) -> str:
    return f"start: %json {json.dumps(schema)}"


def choices(constraint: Constraint) -> str:
    """The bytes that may come next, and `$` where the reply may end."""
    allowed = constraint.allowed().nonzero()[0].tolist()
    return "".join(chr(t) if t < 256 else "$" for t in allowed if t < 256 or t == IM_END)


def say(constraint: Constraint, text: str) -> bool:
    ended = False
    for byte in text.encode():
        assert not ended
        ended = constraint.accept(byte)
    return ended


def test_a_reply_may_end_only_where_the_grammar_accepts() -> None:
    constraint = GRAMMARS.compile('start: "ab" | "abc"')
    assert choices(constraint) == "a"
    assert not say(constraint, "ab")
    assert choices(constraint) == "c$"
    assert say(constraint, "c")


def test_what_is_compiled_once_begins_anew_each_time() -> None:
    one, other = (GRAMMARS.compile(held_to(PERSON)) for _ in range(2))
    say(one, '{"name": "x')
    assert choices(other) == "{"
    assert say(other, BO)
    assert '"' in choices(one)
    assert choices(GRAMMARS.compile(held_to(PERSON))) == "{"


def test_a_token_that_is_not_allowed_is_a_fault() -> None:
    constraint = GRAMMARS.compile('start: "ab"')
    with pytest.raises(GrammarFault):
        constraint.accept(ord("x"))


@pytest.mark.parametrize(
    ("grammar", "message"),
    [
        ('start: "x', "lexer error"),
        ("start: other", "other"),
        ('start: %json {"pattern": "(?=a)"}', "look-around"),
        ("#" * (MAX_GRAMMAR_CHARS + 1), str(MAX_GRAMMAR_CHARS)),
    ],
)
def test_a_grammar_that_cannot_be_used_says_why(grammar: str, message: str) -> None:
    with pytest.raises(GrammarError, match=message):
        GRAMMARS.compile(grammar)


def test_a_model_that_cannot_end_a_reply_is_held_to_nothing() -> None:
    class Endless(ByteTokenizer):
        eog = ()  # type: ignore[assignment]

    with pytest.raises(GrammarError, match="ends a reply"):
        Grammars(Endless()).compile('start: "a"')


def test_control_tokens_are_named_or_spelled() -> None:
    named = GRAMMARS.compile('start: "a" <|im_start|> "b"')
    say(named, "a")
    assert named.allowed().nonzero()[0].tolist() == [IM_START]
    spelled = GRAMMARS.compile('start: "a" ("<|im_start|>" | "c")', special_text=True)
    say(spelled, "a")
    assert set(spelled.allowed().nonzero()[0].tolist()) == {ord("<"), ord("c"), IM_START}


class Spaced(ByteTokenizer):
    """Puts a space in front of any text, as some models' do."""

    def tokenize(self, text: str, *, special: bool, bos: bool) -> list[int]:
        return super().tokenize(" " + text, special=special, bos=bos)


class Forgetful(ByteTokenizer):
    """Spells nothing back as it was."""

    def tokenize(self, text: str, *, special: bool, bos: bool) -> list[int]:
        return []


@pytest.mark.parametrize("tokenizer", [Spaced(), Forgetful()])
def test_what_is_forced_is_spelled_exactly(tokenizer: ByteTokenizer) -> None:
    constraint = Grammars(tokenizer).compile('start: "forced" /[xy]/')
    for byte in b"forced":
        assert constraint.allowed().nonzero()[0].tolist() == [byte]
        constraint.accept(byte)
    assert choices(constraint) == "xy"


def test_a_script_the_grammar_allows_is_played_and_ends_with_it() -> None:
    b = bench()
    turn = b.ask(chat(("user", f"EMIT:{BO} and more")), grammar=held_to(PERSON))
    assert b.text(turn) == BO
    assert b.ended(turn).reason is EndReason.STOP
    assert b.ended(turn).output_tokens == len(BO)
    assert b.ended(turn).token_text == BO


def test_a_reply_that_leaves_its_script_ends_soon() -> None:
    b = bench()
    assert b.text(b.ask(chat(("user", "hi")), grammar=held_to(PERSON))) == '{"name":"","age":0}'
    cut = b.ask(chat(("user", f"EMIT:{BO[:-1]}")), grammar=held_to(PERSON))
    assert b.text(cut) == BO


def test_a_token_that_ends_the_reply_counts_where_one_is_needed() -> None:
    b = bench()
    turn = b.ask(chat(("user", "EMIT:ab")), grammar='start: "ab" | "abc"')
    assert b.text(turn) == "ab"
    assert b.ended(turn).output_tokens == 3


def test_stop_strings_and_limits_end_a_constrained_reply_too() -> None:
    b = bench()
    stopped = b.ask(chat(("user", f"EMIT:{BO}")), grammar=held_to(PERSON), stop=('", "',))
    assert b.text(stopped) == '{"name": "Bo'
    assert b.ended(stopped).reason is EndReason.STOP_SEQUENCE
    short = b.ask(chat(("user", f"EMIT:{BO}")), grammar=held_to(PERSON), max_tokens=len(BO) - 1)
    assert b.ended(short).reason is EndReason.LENGTH
    exact = b.ask(chat(("user", f"EMIT:{BO}")), grammar=held_to(PERSON), max_tokens=len(BO))
    assert b.ended(exact).reason is EndReason.STOP


def test_a_bad_grammar_fails_its_turn_alone_and_before_prefill() -> None:
    b = bench()
    bad, good = b.submit(chat(("user", "hi")), grammar='start: "x'), b.submit(chat(("user", "hi")))
    b.run()
    assert b.failed(bad).kind is FailureKind.INVALID
    assert "lexer error" in b.failed(bad).message
    assert len(b.events[bad]) == 1
    assert b.text(good) == "echo: hi"
    assert b.scheduler.stats().faults == 0


def test_a_matcher_that_fails_takes_only_its_turn_along() -> None:
    b = bench()
    broken = GRAMMARS.compile('start: "ab"')
    with pytest.raises(GrammarFault):
        broken.accept(ord("x"))
    lost = b.submit(chat(("user", "EMIT:ab")), grammar='start: "ab"', compile_now=False)
    b.scheduler.compiled(lost, broken)
    other = b.submit(chat(("user", "hi")))
    b.run()
    assert b.failed(lost).kind is FailureKind.FAULT
    assert "grammar" in b.failed(lost).message
    assert b.text(other) == "echo: hi"
    b.check_accounts()


def test_a_turn_whose_grammar_is_being_compiled_lets_others_pass() -> None:
    b = bench(capacity=1)
    waiting = b.submit(chat(("user", f"EMIT:{BO}")), grammar=held_to(PERSON), compile_now=False)
    assert not b.scheduler.has_work
    other = b.submit(chat(("user", "hi")))
    b.run()
    assert b.text(other) == "echo: hi"
    assert not b.events[waiting]
    b.compile()
    b.run()
    assert b.text(waiting) == BO


def test_a_turn_cancelled_while_its_grammar_is_compiled_is_gone() -> None:
    b = bench()
    turn = b.submit(chat(("user", "hi")), grammar=held_to(PERSON), compile_now=False)
    b.scheduler.cancel(turn)
    b.compile()
    b.run()
    assert not b.events[turn]
    assert not b.scheduler.has_work


def test_special_text_spells_control_tokens() -> None:
    b = bench()
    spelled = b.ask(chat(("user", "hi")), grammar='start: "a<|im_start|>b"', special_text=True)
    assert b.text(spelled) == b.ended(spelled).token_text == "a<|im_start|>b"
    silent = b.ask(chat(("user", "hi")), grammar='start: "a" <|im_start|> "b"')
    assert b.text(silent) == b.ended(silent).token_text == "ab"
    assert b.ended(spelled).token_ids == b.ended(silent).token_ids == (ord("a"), IM_START, ord("b"))


keys = st.text(alphabet='abé"\\ ', max_size=3)
leaves = st.sampled_from(
    (
        {"type": "integer"},
        {"type": "number", "minimum": -2, "maximum": 7},
        {"type": "boolean"},
        {"type": "null"},
        {"type": "string", "minLength": 1, "maxLength": 5},
        {"type": "string", "pattern": "^[a-c]{2}-\\d+$"},
        {"type": "string", "format": "date"},
        {"enum": ["red", 1, None, {"a": [1]}]},
        {"const": "é"},
        {"type": ["string", "integer"], "maxLength": 3},
    )
)


def _objects(members: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.builds(
        lambda properties, n: {
            "type": "object",
            "properties": properties,
            "required": list(properties)[:n],
            "additionalProperties": False,
        },
        st.dictionaries(keys, members, max_size=4),
        st.integers(0, 4),
    )


def _nested(members: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    arrays = st.builds(
        lambda items, least, more: {"type": "array", "items": items, "minItems": least, "maxItems": least + more},
        members,
        st.integers(0, 2),
        st.integers(0, 2),
    )
    return st.one_of(_objects(members), arrays, st.builds(lambda a, b: {"anyOf": [a, b]}, members, members))


schemas = _objects(st.recursive(leaves, _nested, max_leaves=6))


@settings(max_examples=60, deadline=None)
@given(schema=schemas, seed=st.sampled_from((None, 1, 2)), hash_mode=st.booleans())
def test_whatever_ends_by_itself_is_valid(schema: dict[str, Any], seed: int | None, hash_mode: bool) -> None:
    b = bench(hash_mode=hash_mode)
    sampling = SamplingParams(temperature=0.0) if seed is None else SamplingParams(temperature=1.0, seed=seed)
    turn = b.ask(chat(("user", "go")), grammar=held_to(schema), sampling=sampling, max_tokens=2000)
    ended = b.ended(turn)
    if not hash_mode:
        assert ended.reason is EndReason.STOP
    if ended.reason is EndReason.STOP:
        jsonschema.validate(json.loads(b.text(turn)), schema)
    again = b.ask(chat(("user", "go")), grammar=held_to(schema), sampling=sampling, max_tokens=2000)
    assert b.text(again) == b.text(turn)
