"""Turns to store."""

from __future__ import annotations

from warmlane.conversation.messages import Message, Role, Sampled, Text
from warmlane.conversation.turn import CacheFacts, CacheOutcome, Outcome, StopReason, Usage
from warmlane.store import StoredTurn, TurnStatus

NOW = 1_000_000.0


def outcome(text: str = "Yes.") -> Outcome:
    return Outcome(
        message=Message(Role.ASSISTANT, (Text(text),), Sampled((7, 8), text, "tokenizer-a")),
        stop_reason=StopReason.STOP,
        usage=Usage(prompt_tokens=10, cached_tokens=4, output_tokens=2),
        cache=CacheFacts(CacheOutcome.FRESH, "none", 4),
    )


def turn(
    response_id: str,
    previous: str | None = None,
    *,
    tenant: str = "ada",
    created_at: float = NOW,
    expires_at: float = NOW + 100,
    said: str | None = None,
) -> StoredTurn:
    return StoredTurn(
        id=response_id,
        tenant=tenant,
        model="m",
        previous_response_id=previous,
        created_at=created_at,
        expires_at=expires_at,
        status=TurnStatus.COMPLETED,
        instructions=None,
        input=(Message(Role.USER, (Text(said or f"ask {response_id}"),)),),
        outcome=outcome(f"answer {response_id}"),
        echo=b'{"n":1}',
    )
