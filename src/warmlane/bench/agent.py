"""A coding agent's session on Messages: how much of what could be reused is."""

from __future__ import annotations

import random
import statistics
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from warmlane.bench.agent_script import AgentSession, AgentSizes, MessagesRequest
from warmlane.bench.client import BenchClient, RequestRefused
from warmlane.bench.replies import Reply
from warmlane.bench.reusable import Exchange, Reference, pick_reference
from warmlane.bench.stats import Better
from warmlane.bench.workload import Against, Metric, Sample, Shape, Side

EXPLAINED_FROM = 0.99
"""A request that reuses less than this of what it could must say why, unless it lacks few tokens."""

FEW_TOKENS = 8
"""What counting reusable tokens may be off by (see `reusable`), and the last sampled token, which has no cell."""

NO_REASONS = frozenset({"", "hit", "fresh", "no_key"})
"""What a server says where nothing was looked up, or was found: no reason for tokens that were not reused."""


@dataclass(frozen=True, slots=True)
class _Measured:
    reusable: int
    reply: Reply

    @property
    def unexplained(self) -> bool:
        lacking = self.reusable - self.reply.cached_tokens
        short = lacking > max(FEW_TOKENS, (1 - EXPLAINED_FROM) * self.reusable)
        return short and self.reply.miss_reason in NO_REASONS


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """One session of many calls, with a request for a title beside it now and then."""

    name: ClassVar = "agent40"
    metrics: ClassVar = (
        Metric(name="reused of reusable", unit="%", better=Better.HIGHER, bound=99.0, against=Against.ITSELF),
        Metric(name="unexplained", better=Better.LOWER, bound=0.0, against=Against.ITSELF),
        Metric(name="reused of prompts", unit="%", better=Better.HIGHER),
        Metric(name="ttft median", unit="s", better=Better.LOWER),
        Metric(name="calls"),
        Metric(name="last prompt", unit="tok"),
    )
    ours_only: ClassVar = False
    needs_launcher: ClassVar = False
    shape: ClassVar = Shape.LONG

    sizes: AgentSizes = field(default_factory=AgentSizes)

    async def run(self, side: Side, rng: random.Random) -> Sample:
        seed = rng.random()
        probe = AgentSession(random.Random(seed), self.sizes, native_tools=True).request().body(None)
        native = await _takes_tools(side.client, probe)
        if native is None:
            return Sample({}, (f"{side.name}: it has no /v1/messages",))
        if native and side.other is not None:
            # Both sides get the same prompts.
            native = await _takes_tools(side.other, probe) is not False
        session = AgentSession(random.Random(seed), self.sizes, native_tools=native)
        reference: Reference | None = None
        measured: list[_Measured] = []
        calls: list[Reply] = []
        async for request, reply, is_call in self._requests(side.client, session):
            if reference is None:
                reference = await pick_reference(side.client, side.reference, Exchange(request, reply))
            measured.append(_Measured(await reference.reusable(request, reply), reply))
            if is_call:
                calls.append(reply)
        told = "tools given natively" if native else "tools given as text of the system prompt: a server refuses tools"
        method = reference.method if reference else "nothing was asked"
        return Sample(_values(measured, calls), (f"{side.name}: {told}", f"{side.name}: {method}"))

    async def _requests(
        self, client: BenchClient, session: AgentSession
    ) -> AsyncIterator[tuple[MessagesRequest, Reply, bool]]:
        """Each request with its reply, and whether it is a call of the session."""
        for n in range(self.sizes.n_calls):
            request = session.request()
            reply = await client.messages(request.body(session.billing_line()))
            session.take(reply)
            yield request, reply, True
            if n % self.sizes.title_every == 0:
                title = session.title_request()
                yield title, await client.messages(title.body(session.billing_line())), False
            if reply.prompt_tokens + self.sizes.growth_tokens > self.sizes.limit_tokens:
                return


async def _takes_tools(client: BenchClient, body: Mapping[str, object]) -> bool | None:
    """Whether the server accepts tools; None if it does not speak Messages."""
    try:
        await client.count_tokens(body)
    except RequestRefused as refusal:
        if refusal.status in (404, 405, 501):
            return None
        if refusal.status == 400:
            return False
        raise
    return True


def _values(measured: list[_Measured], calls: list[Reply]) -> dict[str, float]:
    replies = [m.reply for m in measured]
    reused = sum(min(m.reply.cached_tokens, m.reusable) for m in measured)
    reusable = sum(m.reusable for m in measured)
    return {
        "reused of reusable": 100 * reused / max(1, reusable),
        "unexplained": float(sum(m.unexplained for m in measured)),
        "reused of prompts": 100 * sum(r.cached_tokens for r in replies) / sum(r.prompt_tokens for r in replies),
        "ttft median": statistics.median(reply.ttft_s for reply in calls),
        "calls": float(len(calls)),
        "last prompt": float(calls[-1].prompt_tokens),
    }
