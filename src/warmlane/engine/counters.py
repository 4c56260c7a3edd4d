"""Running totals of a scheduler."""

from __future__ import annotations

from dataclasses import dataclass

from warmlane.engine.prefix_cache import Placement, PrefixCache
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
    hot_tokens: int = 0
    ram_tokens: int = 0
    disk_tokens: int = 0
    output_tokens: int = 0
    preemptions: int = 0
    faults: int = 0

    def step(self, took_ms: float) -> None:
        self.step_ms = took_ms
        self.step_ms_mean += (took_ms - self.step_ms_mean) * (_SMOOTHING if self.steps else 1.0)
        self.steps += 1

    def placed(self, prompt_tokens: int, placement: Placement) -> None:
        self.placed_turns += 1
        self.prefix_hits += len(placement.chain) > 0
        self.prompt_tokens += prompt_tokens
        self.cached_tokens += len(placement.chain)
        self.hot_tokens += placement.hot
        self.ram_tokens += placement.ram
        self.disk_tokens += placement.disk

    def stats(
        self,
        *,
        waiting: int,
        following: int,
        prefilling: int,
        decoding: int,
        sequences: int,
        prefill_ms_per_token: float,
        cache: PrefixCache,
    ) -> EngineStats:
        pool, ram, disk = cache.pool, cache.ram, cache.disk
        running, owned, idle = pool.cells_by_state()
        return EngineStats(
            waiting_turns=waiting,
            following_turns=following,
            prefilling_turns=prefilling,
            decoding_turns=decoding,
            cells_total=pool.table.n_cells,
            cells_running=running,
            cells_owned=owned,
            cells_idle=idle,
            sequences_total=sequences,
            sequences_used=len(pool),
            steps=self.steps,
            step_ms=self.step_ms,
            step_ms_mean=self.step_ms_mean,
            prefill_ms_per_token=prefill_ms_per_token,
            placed_turns=self.placed_turns,
            prefix_hits=self.prefix_hits,
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            hot_tokens=self.hot_tokens,
            ram_tokens=self.ram_tokens,
            disk_tokens=self.disk_tokens,
            output_tokens=self.output_tokens,
            evictions=pool.evictions,
            preemptions=self.preemptions,
            faults=self.faults,
            spills=cache.spills + cache.leaver.spills,
            restores=cache.restorer.restores,
            restore_failures=cache.restorer.restore_failures,
            ram_bytes=ram.allocated_bytes,
            ram_limit_bytes=ram.limit_bytes,
            ram_segments=len(ram.index),
            ram_evictions=ram.evictions,
            ram_refusals=ram.refusals,
            pins=len(cache.pins),
            disk_bytes=disk.used_bytes if disk else 0,
            disk_limit_bytes=disk.limit_bytes if disk else 0,
            disk_segments=disk.n_segments if disk else 0,
            disk_writes=disk.writes if disk else 0,
            disk_write_errors=disk.write_errors if disk else 0,
            disk_damaged=disk.damaged if disk else 0,
            disk_passed_over=disk.passed_over if disk else 0,
        )
