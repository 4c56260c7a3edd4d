"""Running totals of a scheduler."""

from __future__ import annotations

from dataclasses import dataclass

from warmlane.engine.stats import EngineStats

_SMOOTHING = 1 / 50


@dataclass(slots=True)
class Counters:
    """Totals since the start; `EngineStats` says what each means."""

    steps: int = 0
    step_ms: float = 0.0
    step_ms_mean: float = 0.0
    placed_turns: int = 0
    prefix_hits: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    preemptions: int = 0
    faults: int = 0

    def step(self, took_ms: float) -> None:
        self.step_ms = took_ms
        self.step_ms_mean += (took_ms - self.step_ms_mean) * (_SMOOTHING if self.steps else 1.0)
        self.steps += 1

    def placed(self, prompt_tokens: int, cached_tokens: int) -> None:
        self.placed_turns += 1
        self.prefix_hits += cached_tokens > 0
        self.prompt_tokens += prompt_tokens
        self.cached_tokens += cached_tokens

    def stats(
        self,
        *,
        waiting: int,
        prefilling: int,
        decoding: int,
        cells: tuple[int, int, int, int],
        sequences: tuple[int, int],
        evictions: int,
    ) -> EngineStats:
        """`cells` are total, running, owned, idle; `sequences` total and used."""
        cells_total, cells_running, cells_owned, cells_idle = cells
        sequences_total, sequences_used = sequences
        return EngineStats(
            waiting_turns=waiting,
            prefilling_turns=prefilling,
            decoding_turns=decoding,
            cells_total=cells_total,
            cells_running=cells_running,
            cells_owned=cells_owned,
            cells_idle=cells_idle,
            sequences_total=sequences_total,
            sequences_used=sequences_used,
            steps=self.steps,
            step_ms=self.step_ms,
            step_ms_mean=self.step_ms_mean,
            placed_turns=self.placed_turns,
            prefix_hits=self.prefix_hits,
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            output_tokens=self.output_tokens,
            evictions=evictions,
            preemptions=self.preemptions,
            faults=self.faults,
        )
