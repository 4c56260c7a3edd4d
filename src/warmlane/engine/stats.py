"""What an engine says about itself."""

from __future__ import annotations

import msgspec


class EngineStats(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot of an engine, taken between two steps.

    Gauges: turns by state, and unique cells by the liveliest chain that holds them (`running`: a turn runs; `owned`: a
    session's, between turns; `idle`: nobody's, kept as a prefix). `following_turns` of the waiting ones wait for a
    prefix another computes. Counters run since the worker started: `cached_tokens` of `prompt_tokens` were reused, out
    of the hot pool, RAM and disk, and `prefix_hits` of `placed_turns` turns reused any. Step times are in milliseconds,
    the mean an exponential one over about 50 steps.

    A segment is a snapshot in a lower tier; `spills` copied chains to RAM, before they left or then, and `restores`
    brought segments back. RAM and disk `bytes` are gauges, and so are the `pins`, prefixes that clients asked to keep.
    `ram_refusals` were larger than the tier; `disk_damaged` files were removed, and `disk_passed_over` ones not read
    because computing was quicker.
    """

    waiting_turns: int
    following_turns: int
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
    prefill_ms_per_token: float
    placed_turns: int
    prefix_hits: int
    prompt_tokens: int
    cached_tokens: int
    hot_tokens: int
    ram_tokens: int
    disk_tokens: int
    output_tokens: int
    evictions: int
    preemptions: int
    faults: int
    spills: int
    restores: int
    restore_failures: int
    ram_bytes: int
    ram_limit_bytes: int
    ram_segments: int
    ram_evictions: int
    ram_refusals: int
    pins: int
    disk_bytes: int
    disk_limit_bytes: int
    disk_segments: int
    disk_writes: int
    disk_write_errors: int
    disk_damaged: int
    disk_passed_over: int
