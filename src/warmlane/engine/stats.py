"""What an engine says about itself."""

from __future__ import annotations

import msgspec


class EngineStats(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot of an engine, taken between two steps.

    Gauges: turns by state, and unique cells by the liveliest chain that holds them (`running`: a turn runs; `owned`: a
    session's, between turns; `idle`: nobody's, kept as a prefix). Counters run since the worker started:
    `cached_tokens` of `prompt_tokens` were reused, and `prefix_hits` of `placed_turns` turns reused any. Step times are
    in milliseconds, the mean an exponential one over about 50 steps.
    """

    waiting_turns: int
    prefilling_turns: int
    decoding_turns: int
    cells_total: int
    cells_running: int
    cells_owned: int
    cells_idle: int
    sequences_total: int
    sequences_used: int
    steps: int
    step_ms: float
    step_ms_mean: float
    placed_turns: int
    prefix_hits: int
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    evictions: int
    preemptions: int
    faults: int
