"""What the steps of a scheduler in this process are made of: a backend that notes it, and a chat to give it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from warmlane.engine.assembly import Assembled, assemble, open_backend
from warmlane.engine.backends.base import Allocate, Backend, ByteArray, Decoded, Slice, Tokenizer
from warmlane.engine.config import EngineConfig
from warmlane.engine.protocol import GenerateRequest, OwnerId, SamplingParams

DOMAIN = b"one tenant's own"


@dataclass(slots=True)
class Step:
    """Milliseconds of its batch and of what it copied, and sequences and tokens in the batch."""

    batch_ms: float = 0.0
    copied_ms: float = 0.0
    sequences: int = 0
    tokens: int = 0


class Watched:
    """A backend that notes what the present step's calls take."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.step = Step()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def decode(self, slices: Sequence[Slice]) -> Decoded:
        began = time.perf_counter()
        decoded = self._backend.decode(slices)
        self.step.batch_ms += (time.perf_counter() - began) * 1e3
        self.step.sequences += len(slices)
        self.step.tokens += sum(int(s.tokens.size) for s in slices)
        return decoded

    def snapshot(self, seq: int, start: int, allocate: Allocate, *, end: int | None = None) -> ByteArray | None:
        began = time.perf_counter()
        data = self._backend.snapshot(seq, start, allocate, end=end)
        self.step.copied_ms += (time.perf_counter() - began) * 1e3
        return data


def watched(config: EngineConfig) -> tuple[Assembled, Watched]:
    """An engine whose backend is watched."""
    opened: list[Watched] = []

    def open_watched(config: EngineConfig) -> Backend:
        opened.append(Watched(open_backend(config)))
        return cast(Backend, opened[0])

    return assemble(config, 0, open_backend=open_watched), opened[0]


def chat(tokenizer: Tokenizer, owner: OwnerId, text: str, max_tokens: int) -> GenerateRequest:
    """A greedy turn that answers `text`, in the template of the embedded model."""
    parts = (("<|im_start|>", True), (f"user\n{text}", False), ("<|im_end|>", True), ("\n", False))
    parts += (("<|im_start|>", True), ("assistant\n", False))
    prompt = [t for part, special in parts for t in tokenizer.tokenize(part, special=special, bos=False)]
    return GenerateRequest(
        owner=owner,
        domain=DOMAIN,
        prompt=tuple(prompt),
        sampling=SamplingParams(temperature=0.0),
        max_tokens=max_tokens,
    )
