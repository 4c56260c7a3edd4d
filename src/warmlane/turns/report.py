"""What is told of a turn once it is over: one access line, and the counters. No text of it unless asked for."""

from __future__ import annotations

import structlog

from warmlane.conversation.turn import Outcome, TurnRequest
from warmlane.errors import WarmlaneError
from warmlane.observe import Metrics

log = structlog.stdlib.get_logger("warmlane.turn")


def report(
    metrics: Metrics,
    request: TurnRequest,
    outcome: Outcome | None,
    failure: WarmlaneError | None,
    *,
    queued_s: float,
    log_text: bool = False,
) -> None:
    """`outcome` is there once the turn has committed, `failure` if its client was told of one. With `log_text` the line
    holds the last message asked, the answer, and both sides of where the prompt left what was cached."""
    end = type(failure).__name__ if failure is not None else outcome.stop_reason.value if outcome else "lost"
    facts: dict[str, object] = {
        "request_id": request.request_id,
        "response_id": request.response_id,
        "dialect": request.dialect.value,
        "model": request.model,
        "tenant": request.tenant,
        "queue_ms": round(queued_s * 1000, 1),
        "end": end,
    }
    if log_text:
        facts["asked"] = request.input[-1].text if request.input else ""
        facts["answered"] = outcome.message.text if outcome is not None else ""
    metrics.turns.labels(request.model, request.dialect.value, end).inc()
    if outcome is not None:
        usage, timings = outcome.usage, outcome.timings
        facts |= {
            "prompt_tokens": usage.prompt_tokens,
            "cached_tokens": usage.cached_tokens,
            "output_tokens": usage.output_tokens,
            "prefill_ms": round(timings.prefill_ms, 1),
            "decode_ms": round(timings.decode_ms, 1),
            "cache": outcome.cache.outcome.value,
            "reason": outcome.cache.reason,
        }
        divergence = outcome.cache.divergence
        if divergence is not None:
            facts |= {"diverged": divergence.cause.value, "diverged_at": divergence.offset}
            if log_text:
                facts |= {"diverged_before": divergence.before, "diverged_now": divergence.now}
        metrics.prefill_s.labels(request.model).observe(timings.prefill_ms / 1000)
        for kind, n in (
            ("cached", usage.cached_tokens),
            ("prefilled", usage.prompt_tokens - usage.cached_tokens),
            ("output", usage.output_tokens),
        ):
            metrics.tokens.labels(request.model, kind).inc(n)
    log.info("turn", **facts)
