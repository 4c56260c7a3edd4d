"""What was said before a request's own input."""

from __future__ import annotations

from dataclasses import dataclass

from warmlane.conversation.messages import Message
from warmlane.conversation.turn import TurnRequest
from warmlane.errors import ConversationNotFound, PreviousResponseNotFound
from warmlane.host import Binding
from warmlane.sessions import PeekedHistory
from warmlane.store import Continued
from warmlane.turns.parts import SpineParts


@dataclass(frozen=True, slots=True)
class History:
    """The messages a request continues, with the tokens of replies this domain was given. `other_model`: another model
    said the last of them. `previous_response_id` is the response that ended them, if one did; `continued` the kept
    conversation they are from."""

    messages: tuple[Message, ...] = ()
    other_model: bool = False
    previous_response_id: str | None = None
    continued: Continued | None = None


async def read_history(parts: SpineParts, binding: Binding, request: TurnRequest) -> History:
    """From the kept conversation that the request names; else from a warm session of this model, else of another one,
    else from the store. It changes nothing.

    Raises `ConversationNotFound`, and `PreviousResponseNotFound` for an id this tenant has neither warm nor stored.
    """
    if request.conversation_id is not None:
        return await _kept(parts, binding, request, request.conversation_id)
    previous = request.previous_response_id
    if previous is None:
        return History()
    warm, other_model = _peek(parts, binding, request, previous)
    if warm is not None:
        return History(_recalled(parts, binding, request, warm.history), other_model, previous)
    chain = await parts.store.history(previous, request.tenant, now=parts.unix_now())
    if chain is None:
        raise PreviousResponseNotFound(previous)
    messages = _recalled(parts, binding, request, chain.messages)
    return History(messages, chain.last.model != binding.name, previous)


async def _kept(parts: SpineParts, binding: Binding, request: TurnRequest, conversation_id: str) -> History:
    transcript = await parts.store.conversations.read(conversation_id, request.tenant)
    if transcript is None:
        raise ConversationNotFound(conversation_id, param="conversation")
    last = transcript.conversation.last_response_id
    other_model = last is not None and _peek(parts, binding, request, last)[1]
    continued = Continued(conversation_id, transcript.conversation.revision)
    return History(_recalled(parts, binding, request, transcript.messages), other_model, last, continued)


def _peek(
    parts: SpineParts, binding: Binding, request: TurnRequest, response_id: str
) -> tuple[PeekedHistory | None, bool]:
    """What is warm under an id, and whether another model's."""
    others = [other for other in parts.host.bindings() if other is not binding]
    for candidate in (binding, *others):
        warm = candidate.registry.peek(response_id, tenant=request.tenant, domain=request.domain)
        if warm is not None:
            return warm, candidate is not binding
    return None, False


def _recalled(
    parts: SpineParts, binding: Binding, request: TurnRequest, messages: tuple[Message, ...]
) -> tuple[Message, ...]:
    return parts.prompter(binding).recall(request.domain, messages)
