"""Conversations with an engine in this process, and what each prompt is answered by one that knows nothing else."""

from __future__ import annotations

import random
from dataclasses import dataclass

from warmlane.engine.config import EngineConfig
from warmlane.engine.local import LocalEngine
from warmlane.engine.protocol import Chunk, Ended, GenerateRequest, OwnerId, Placed, SamplingParams, TextPiece

DOMAIN = b"d" * 16
OTHER_DOMAIN = b"e" * 16
SAMPLING = SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.05, seed=11)
"""Seeded: as repeatable as greedy, without its loops."""


@dataclass(frozen=True, slots=True)
class Heard:
    """A finished turn. `held` is how many tokens the engine holds of it at least."""

    text: str
    placed: Placed
    n_output: int

    @property
    def held(self) -> int:
        return self.placed.prompt_tokens + self.n_output - 1

    @property
    def cached(self) -> int:
        return self.placed.cached_tokens


async def say(
    engine: LocalEngine,
    prompt: str,
    owner: OwnerId,
    *,
    domain: bytes = DOMAIN,
    max_tokens: int = 16,
    sampling: SamplingParams = SAMPLING,
) -> Heard:
    """Run one turn to its end."""
    (ids,) = await engine.tokenize([TextPiece(prompt, special=True, bos=True)])
    request = GenerateRequest(owner=owner, domain=domain, prompt=tuple(ids), sampling=sampling, max_tokens=max_tokens)
    events = [event async for event in engine.generate(request)]
    placed, ended = events[0], events[-1]
    assert isinstance(placed, Placed)
    assert isinstance(ended, Ended)
    return Heard("".join(e.text for e in events if isinstance(e, Chunk)), placed, ended.output_tokens)


class Alone:
    """What prompts are answered by a fresh engine of this configuration, remembered."""

    def __init__(self, config: EngineConfig, *, sampling: SamplingParams = SAMPLING) -> None:
        self._config = config
        self._sampling = sampling
        self._known: dict[tuple[str, ...], str] = {}

    async def text(self, *prompts: str) -> str:
        """The answer to the last of them, asked one after the other as one conversation: so its tokens are computed in
        the batches they are computed in where they continue one another."""
        if prompts not in self._known:
            engine = await LocalEngine.start(self._config)
            owner = engine.new_owner()
            try:
                heard = [await say(engine, prompt, owner, sampling=self._sampling) for prompt in prompts]
            finally:
                await engine.close()
            self._known[prompts] = heard[-1].text
        return self._known[prompts]


@dataclass(slots=True)
class _Conversation:
    owner: OwnerId
    domain: bytes
    turns: list[str]


async def wander(engine: LocalEngine, alone: Alone, rng: random.Random, *, turns: int, system: str) -> None:
    """Conversations of two domains that go on, are edited, branch off and begin anew, in any order: whatever was
    reused, each answer is that of the prompt alone."""
    talks = [_Conversation(engine.new_owner(), rng.choice((DOMAIN, OTHER_DOMAIN)), []) for _ in range(4)]
    for number in range(turns):
        talk = rng.choice(talks)
        match rng.choice(("on", "on", "on", "edit", "branch", "new")):
            case "edit" if talk.turns:
                talk.turns = talk.turns[: rng.randrange(len(talk.turns))]
            case "branch":
                source = rng.choice(talks)
                talk.domain, talk.turns = source.domain, list(source.turns)
            case "new":
                await engine.release(talk.owner, purge=rng.random() < 0.3)
                talk.owner, talk.turns = engine.new_owner(), []
        words = " ".join(str(rng.randrange(100)) for _ in range(rng.randrange(1, 40)))
        asked = f"<|im_start|>user\n{number}: {words}<|im_end|>\n<|im_start|>assistant\n"
        prompt = f"<|im_start|>system\n{system}<|im_end|>\n" + "".join(talk.turns) + asked
        heard = await say(engine, prompt, talk.owner, domain=talk.domain)
        assert heard.text == await alone.text(prompt), f"turn {number}, {heard.placed}"
        talk.turns.append(f"{asked}{heard.text}<|im_end|>\n")
