"""What was said before a request's own input."""

from __future__ import annotations

from dataclasses import dataclass

from warmlane.conversation.messages import Message
from warmlane.conversation.turn import TurnRequest
from warmlane.errors import PreviousResponseNotFound
from warmlane.host import Binding
from warmlane.turns.parts import SpineParts


@dataclass(frozen=True, slots=True)
class History:
    """The messages a request continues, with the tokens of replies this domain was given. `other_model`: another model
    said the last of them."""

    messages: tuple[Message, ...] = ()
    other_model: bool = False


async def read_history(parts: SpineParts, binding: Binding, request: TurnRequest) -> History:
    """From a warm session of this model, else of another one, else from the store; it changes nothing.

    Raises `PreviousResponseNotFound` for an id this tenant has neither warm nor stored.
    """
    previous = request.previous_response_id
    if previous is None:
        return History()
    others = [other for other in parts.host.bindings() if other is not binding]
    for candidate in (binding, *others):
        warm = candidate.registry.peek(previous, tenant=request.tenant, domain=request.domain)
        if warm is not None:
            return _recalled(parts, binding, request, warm.history, other_model=candidate is not binding)
    chain = await parts.store.history(previous, request.tenant, now=parts.unix_now())
    if chain is None:
        raise PreviousResponseNotFound(previous)
    return _recalled(parts, binding, request, chain.messages, other_model=chain.last.model != binding.name)


def _recalled(
    parts: SpineParts, binding: Binding, request: TurnRequest, messages: tuple[Message, ...], *, other_model: bool
) -> History:
    return History(parts.prompter(binding).recall(request.domain, messages), other_model)
