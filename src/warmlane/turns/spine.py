"""The spine as the edge sees it: permits, turns and token counts."""

from __future__ import annotations

from warmlane.conversation.turn import TurnRequest
from warmlane.errors import EngineFault, Unavailable
from warmlane.turns.cancel import CancelFlag, TurnCancelled
from warmlane.turns.parts import ModelPermit, SpineParts
from warmlane.turns.service import TurnPermit
from warmlane.turns.stream import TurnStream
from warmlane.turns.turn import Turn


class Spine:
    """Implements `turns.service.TurnService` over a host and a store."""

    def __init__(self, parts: SpineParts) -> None:
        self._parts = parts

    def domain(self, tenant: str, salt: str | None) -> bytes:
        return self._parts.secrets.domain(tenant, salt)

    def reserve(self, model: str, tenant: str) -> ModelPermit:
        return ModelPermit(self._parts, model, tenant)

    def start(self, request: TurnRequest, permit: TurnPermit) -> TurnStream:
        if not isinstance(permit, ModelPermit):
            raise TypeError("the permit was not taken from this spine")
        parts = self._parts
        stream = TurnStream(drain_timeout_s=parts.drain_timeout_s)
        flag = CancelFlag(parts.clock)
        stream.on_close(lambda: flag.set(TurnCancelled("The client went away.")))
        turn = Turn(parts, request, permit, stream, flag)
        parts.host.tasks.start(
            self._run(turn, flag),
            abort=lambda: flag.set(Unavailable("The server shut down before the turn had ended.", retry_after_s=5)),
            name=f"turn {request.response_id}",
        )
        return stream

    async def count_tokens(self, request: TurnRequest) -> int:
        parts = self._parts
        binding = await parts.host.resolve(request.model)
        prompter = parts.prompter(binding)
        messages = prompter.recall(request.domain, request.input)
        return len(await prompter.prompt(request.instructions, messages))

    async def _run(self, turn: Turn, flag: CancelFlag) -> None:
        limit_s = self._parts.turn_timeout_s
        if limit_s is None:
            await turn.run()
            return
        error = EngineFault(f"The turn took longer than {limit_s:g} s.")
        timer = flag.set_at(self._parts.clock.now() + limit_s, error)
        try:
            await turn.run()
        finally:
            timer.cancel()
