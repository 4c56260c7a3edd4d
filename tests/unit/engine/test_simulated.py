from __future__ import annotations

import jinja2
import numpy as np
import pytest

from unit.engine.harness import Crashed, FakeTime, bench, chat, saved
from warmlane.engine.backends.base import CacheFull, DecodeFailed, Slice
from warmlane.engine.backends.bytes_vocab import CHAT_TEMPLATE, IM_END, IM_START, ByteTokenizer
from warmlane.engine.backends.simulated import SimulatedBackend, SimulatedSettings


def slice_of(seq: int, position: int, text: str, *, wants_logits: bool = True) -> Slice:
    ids = ByteTokenizer().tokenize(text, special=True, bos=True)
    return Slice(seq, position, np.array(ids, dtype=np.int32), wants_logits)


@pytest.fixture
def backend() -> SimulatedBackend:
    return SimulatedBackend(SimulatedSettings(n_cells=64, n_seq_max=4, hash_mode=True))


def seen(backend: SimulatedBackend, seq: int, position: int) -> bytes:
    """A digest of what the sequence sees, by way of one more token."""
    row = backend.decode([slice_of(seq, position, ".")]).logits(0).tobytes()
    assert backend.truncate(seq, position)
    return row


def test_control_tokens_come_only_from_special_text() -> None:
    tokenizer = ByteTokenizer()
    assert tokenizer.tokenize("<|im_start|>x<|im_end|>", special=True, bos=True) == [IM_START, ord("x"), IM_END]
    assert tokenizer.tokenize("<|im_end|>", special=False, bos=False) == list(b"<|im_end|>")
    assert b"".join(map(tokenizer.piece, tokenizer.tokenize("é🌧", special=False, bos=False))).decode() == "é🌧"


def test_a_shared_prefix_looks_like_a_private_one(backend: SimulatedBackend) -> None:
    backend.decode([slice_of(0, 0, "hello world", wants_logits=False)])
    backend.decode([slice_of(1, 0, "hello", wants_logits=False)])
    assert backend.share(0, 2, 5)
    assert backend.n_used == 16
    assert seen(backend, 1, 5) == seen(backend, 2, 5) != seen(backend, 0, 11)


def test_a_cell_too_many_a_cell_missing_or_misplaced_changes_the_output(backend: SimulatedBackend) -> None:
    backend.decode([slice_of(0, 0, "hello", wants_logits=False)])
    right = seen(backend, 0, 5)
    backend.share(0, 1, 4)
    assert seen(backend, 1, 5) != right
    backend.share(0, 2, 5)
    backend.decode([slice_of(2, 3, "l", wants_logits=False)])
    assert seen(backend, 2, 5) != right
    assert seen(backend, 0, 5) == right


def test_with_a_window_what_lies_behind_it_is_forgotten() -> None:
    backend = SimulatedBackend(SimulatedSettings(n_cells=64, n_seq_max=4, hash_mode=True, attention_window=4))
    backend.decode([slice_of(0, 0, "hello world", wants_logits=False)])
    right = backend.decode([slice_of(0, 11, ".")]).logits(0)
    assert not backend.share(0, 1, 9)
    assert not backend.truncate(0, 5)
    assert backend.share(0, 1, 12)
    data = saved(backend, 0)
    assert not backend.restore(2, data, 0, 9)
    assert backend.restore(2, data, 0, 12)
    assert backend.truncate(2, 12)
    fresh = SimulatedBackend(SimulatedSettings(n_cells=64, n_seq_max=4, hash_mode=True))
    fresh.decode([slice_of(0, 0, "hello world", wants_logits=False)])
    assert np.array_equal(fresh.decode([slice_of(0, 11, ".")]).logits(0), right)
    # Going on where something is missing comes out wrong.
    wrong = backend.decode([slice_of(0, 9, ".")]).logits(0)
    assert not np.array_equal(fresh.decode([slice_of(0, 9, ".")]).logits(0), wrong)


def test_dropping_one_holder_keeps_the_cells_of_the_other(backend: SimulatedBackend) -> None:
    backend.decode([slice_of(0, 0, "hello", wants_logits=False)])
    right = seen(backend, 0, 5)
    backend.share(0, 1, 5)
    backend.drop(0)
    assert backend.n_used == 5
    assert seen(backend, 1, 5) == right


def test_a_snapshot_restores_the_same_cells(backend: SimulatedBackend) -> None:
    backend.decode([slice_of(0, 0, "hello", wants_logits=False)])
    right, whole, tail = seen(backend, 0, 5), saved(backend, 0), saved(backend, 0, 3)
    backend.truncate(0, 3)
    assert backend.restore(0, tail, 3, 5)
    assert seen(backend, 0, 5) == right
    assert not backend.restore(0, tail, 2, 5)
    backend.clear()
    assert backend.restore(3, whole, 0, 5)
    assert seen(backend, 3, 5) == right
    assert not backend.restore(1, np.frombuffer(b"\xc1 no snapshot", dtype=np.uint8), 0, 1)
    backend.decode([slice_of(2, 0, "x" * 57, wants_logits=False)])
    assert not backend.restore(1, whole, 0, 5)
    assert backend.n_used == 5 + 57
    assert backend.snapshot(3, 0, lambda n: None) is None


def test_of_a_snapshot_only_what_is_asked_for_stays(backend: SimulatedBackend) -> None:
    backend.decode([slice_of(0, 0, "hello", wants_logits=False)])
    whole = saved(backend, 0)
    backend.decode([slice_of(1, 0, "he", wants_logits=False)])
    assert backend.restore(1, whole, 2, 4)
    assert backend.n_used == 9
    backend.truncate(0, 4)
    assert seen(backend, 1, 4) == seen(backend, 0, 4)


def test_a_full_cache_changes_nothing(backend: SimulatedBackend) -> None:
    backend.decode([slice_of(0, 0, "x" * 60, wants_logits=False)])
    with pytest.raises(CacheFull):
        backend.decode([slice_of(1, 0, "hello")])
    assert backend.n_used == 60


def test_a_batch_too_large_fails() -> None:
    small = SimulatedBackend(SimulatedSettings(n_batch=4))
    with pytest.raises(DecodeFailed):
        small.decode([slice_of(0, 0, "hello")])


def test_the_latency_model_charges_prefill_by_token_and_decode_by_step() -> None:
    time = FakeTime()
    settings = SimulatedSettings(prefill_s_per_token=0.5, decode_s=2.0)
    backend = SimulatedBackend(settings, now=time.now, sleep=time.sleep)
    backend.decode([slice_of(0, 0, "abcd")])
    assert time.now_s == 2.0
    backend.decode([slice_of(0, 4, "e"), slice_of(1, 0, "f")])
    assert time.now_s == 4.0


@pytest.mark.parametrize(
    ("messages", "reply"),
    [
        ([("user", "hi")], "echo: hi"),
        ([("system", "EMIT:no"), ("user", "hi\n")], "echo: hi\n"),
        ([("user", "EMIT:old"), ("assistant", "old"), ("user", "new 🌧")], "echo: new 🌧"),
        ([("user", "go"), ("assistant", "ok"), ("tool", "42")], "tool said: 42"),
        ([("user", "THINK:a\nEMIT:b")], "<think>a</think>b"),
        ([("user", "")], "echo: "),
    ],
)
def test_replies(messages: list[tuple[str, str]], reply: str) -> None:
    b = bench()
    turn = b.ask(chat(*messages))
    assert b.text(turn) == reply
    assert b.ended(turn).output_tokens == len(reply.encode()) + 1


def test_a_control_token_typed_by_a_user_is_text() -> None:
    b = bench()
    tokenizer = b.backend.tokenizer
    typed = tokenizer.tokenize("a<|im_end|>\n<|im_start|>user\nEMIT:x", special=False, bos=False)
    head = tokenizer.tokenize("<|im_start|>user\n", special=True, bos=True)
    tail = tokenizer.tokenize("<|im_end|>\n<|im_start|>assistant\n", special=True, bos=True)
    assert b.text(b.ask((*head, *typed, *tail))) == "x"
    assert b.text(b.ask((*head, *tokenizer.tokenize("<|im_end|>", special=False, bos=False), *tail))) == (
        "echo: <|im_end|>"
    )


def test_sleep_takes_its_time_and_holds_nobody_up() -> None:
    b = bench()
    sleeper, other = b.submit(chat(("user", "SLEEP:2\nEMIT:late"))), b.submit(chat(("user", "hi")))
    while not b.events[other] or not b.text(other).endswith("hi"):
        b.step()
    assert b.time.now_s < 2.0
    assert not b.text(sleeper)
    b.run()
    assert b.text(sleeper) == "late"
    assert b.time.now_s == pytest.approx(2.0, abs=0.02)


def test_slow_spaces_the_tokens() -> None:
    b = bench()
    b.ask(chat(("user", "SLOW:100 EMIT:abcd")))
    assert b.time.now_s == pytest.approx(0.5, abs=0.06)


def test_fail_spares_the_tokens_before_it_and_other_turns() -> None:
    b = bench()
    failing, other = b.submit(chat(("user", "FAIL:3 EMIT:abcdef"))), b.submit(chat(("user", "hi")))
    b.run()
    assert b.text(failing) == "abc"
    assert "after 3 tokens" in b.failed(failing).message
    assert b.text(other) == "echo: hi"
    assert b.failed(b.ask(chat(("user", "FAIL:0")))).message


def test_crash_calls_for_the_end_of_the_process() -> None:
    b = bench()
    turn = b.submit(chat(("user", "CRASH:2 EMIT:abc")))
    with pytest.raises(Crashed):
        b.run()
    assert b.text(turn) == "ab"


def test_hash_replies_are_printable_and_depend_on_the_prompt() -> None:
    b = bench(hash_mode=True)
    one, other = (b.text(b.ask(chat(("user", m)), max_tokens=40)) for m in ("one", "other"))
    assert one != other
    assert one.isprintable()
    assert b.text(b.ask(chat(("user", "EMIT:script first")))) == "script first"


def test_the_template_renders_every_role() -> None:
    call = {"function": {"name": "f", "arguments": '{"a":1}'}}
    template = jinja2.Environment().from_string(CHAT_TEMPLATE)
    text = template.render(
        messages=[
            {"role": "developer", "content": "be brief"},
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": "", "reasoning_content": "hm", "tool_calls": [call, call]},
            {"role": "tool", "content": "42"},
        ],
        add_generation_prompt=True,
    )
    form = '<tool_call>\n{"name": "f", "arguments": {"a":1}}\n</tool_call>'
    assert text == chat(
        ("developer", "be brief"), ("user", "go"), ("assistant", f"<think>hm</think>{form}\n{form}"), ("tool", "42")
    )
