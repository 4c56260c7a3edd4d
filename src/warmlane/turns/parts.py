"""What every turn of this server shares, and the permit one turn holds."""

from __future__ import annotations

import time
import weakref
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from secrets import token_hex

from warmlane.clock import Clock, SystemClock
from warmlane.errors import QueueFull, QueueTimeout
from warmlane.host import Binding, HostPermit, ModelHost
from warmlane.observe import Metrics
from warmlane.prompts import SampledLedger
from warmlane.sessions import Permit, Secrets
from warmlane.store import ResponseStore
from warmlane.turns.domains import KnownDomains
from warmlane.turns.leftovers import Leftovers
from warmlane.turns.prompting import Prompter
from warmlane.turns.suspects import Suspects
from warmlane.turns.traces import TraceLog


async def _nothing_on_disk(_domains: frozenset[bytes], _but_of: frozenset[str]) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class SpineParts:
    """The spine's surroundings. Times in seconds; `chat_template` replaces the models' own; `unix_now` is wall time.
    `output_format` names how the models write, instead of what their templates let assume; `new_call_id` names calls.
    `log_text` lets the log hold what was said. `erase_files` removes the files that models have of domains, but for
    those of the models it is given; it raises `OSError`."""

    host: ModelHost
    store: ResponseStore
    secrets: Secrets
    clock: Clock = field(default_factory=SystemClock)
    unix_now: Callable[[], float] = time.time
    ledger: SampledLedger = field(default_factory=SampledLedger)
    traces: TraceLog = field(default_factory=TraceLog)
    domains: KnownDomains = field(default_factory=KnownDomains)
    leftovers: Leftovers = field(default_factory=Leftovers)
    metrics: Metrics = field(default_factory=Metrics)
    chat_template: str | None = None
    output_format: str | None = None
    new_call_id: Callable[[], str] = lambda: token_hex(12)
    queue_timeout_s: float = 300.0
    drain_timeout_s: float = 30.0
    turn_timeout_s: float | None = None
    log_text: bool = False
    erase_files: Callable[[frozenset[bytes], frozenset[str]], Awaitable[None]] = _nothing_on_disk
    prompters: weakref.WeakKeyDictionary[Binding, Prompter] = field(default_factory=weakref.WeakKeyDictionary)
    suspected: weakref.WeakKeyDictionary[Binding, Suspects] = field(default_factory=weakref.WeakKeyDictionary)

    def prompter(self, binding: Binding) -> Prompter:
        """The prompter of a binding, made at its first use. Raises `ConfigError` if the model has no chat template, or
        there is no such format."""
        prompter = self.prompters.get(binding)
        if prompter is None:
            prompter = Prompter(
                binding.engine, self.ledger, template=self.chat_template, output_format=self.output_format
            )
            self.prompters[binding] = prompter
        return prompter

    def suspects(self, binding: Binding) -> Suspects:
        """The turns of a binding that ran when its worker died."""
        return self.suspected.setdefault(binding, Suspects())

    def reserve(self, model: str, tenant: str, *, deadline: float | None = None) -> HostPermit:
        """A unit of the model's budget; a refusal is counted. `deadline` (clock time) is an earlier permit's."""
        try:
            return self.host.reserve(model, tenant, deadline=deadline)
        except QueueFull as refusal:
            self.metrics.refusals.labels(model, refusal.scope).inc()
            raise

    def queue_timeout(self, *, retry_after_s: int = 1) -> QueueTimeout:
        return QueueTimeout(f"No seat came free within {self.queue_timeout_s:g} s.", retry_after_s=retry_after_s)


class ModelPermit:
    """The permit of one turn: a unit of what its model's name is bound to, now and once more after a change."""

    def __init__(self, parts: SpineParts, model: str, tenant: str) -> None:
        self._parts = parts
        self._model = model
        self._tenant = tenant
        self._held = parts.reserve(model, tenant)
        self.deadline = self._held.deadline

    @property
    def lane_permit(self) -> Permit:
        return self._held.lane_permit

    async def bound(self) -> Binding:
        """The model, once it is resident. Raises `Unavailable`."""
        return await self._held.bound()

    def release(self) -> None:
        self._held.release()

    def rebind(self) -> None:
        """Take a permit for what the name is bound to now, keeping the first deadline.

        Raises `ModelNotFound`, `QueueFull` or `Unavailable`.
        """
        self.release()
        self._held = self._parts.reserve(self._model, self._tenant, deadline=self.deadline)
