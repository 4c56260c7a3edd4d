"""What a response store keeps, and what may be asked of one.

All times are Unix seconds and come from the caller, so that a store has no clock of its own. A row expires when its
`expires_at`, and that of every row that continues it, is strictly past; from then on it is not read any more, and
`prune` deletes it once it is not worked on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

import msgspec

from warmlane.conversation.messages import Message
from warmlane.conversation.turn import Outcome, StopReason, TurnRequest
from warmlane.store.conversations import Continued, ConversationStore
from warmlane.store.runs import RunLog

DAY_S = 86_400.0

HELD_S = 60.0
"""How long an expired row stays before it is deleted, not to be read any more, and how long one that is in use is kept
at a time: every server that shares the store prunes in that time, and says what it uses."""


class TurnStatus(StrEnum):
    """Where a stored turn is. `completed` and `incomplete` (cut by a length limit) can be chained on; the others have
    no outcome."""

    QUEUED = "queued"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    INCOMPLETE = "incomplete"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        return self not in (TurnStatus.QUEUED, TurnStatus.IN_PROGRESS)


class StoredTurn(msgspec.Struct, frozen=True, kw_only=True):
    """One row: what a turn was asked and what it answered.

    `input` is what this turn added to the conversation, not the whole of it; `outcome` is None unless the turn
    succeeded, and its message carries its sampled token ids. `echo` and `error` are the dialect's own JSON, opaque
    here. `domain` is the security domain its KV was computed in, by which that is found when it must go.
    """

    id: str
    tenant: str
    model: str
    previous_response_id: str | None = None
    created_at: float
    expires_at: float
    status: TurnStatus
    instructions: str | None = None
    input: tuple[Message, ...]
    outcome: Outcome | None = None
    echo: bytes = b"{}"
    error: bytes | None = None
    domain: bytes | None = None

    @property
    def output(self) -> Message | None:
        """What the assistant answered."""
        return None if self.outcome is None else self.outcome.message


class ChainTurn(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of a chain: the part of its row that later turns build on."""

    id: str
    model: str
    input: tuple[Message, ...]
    output: Message


@dataclass(frozen=True, slots=True)
class Chain:
    """A whole conversation, oldest turn first; never empty. Instructions are not part of it: they hold for one turn."""

    turns: tuple[ChainTurn, ...]

    @property
    def last(self) -> ChainTurn:
        return self.turns[-1]

    @property
    def messages(self) -> tuple[Message, ...]:
        """Every message in the order it was said."""
        return tuple(self._said())

    def _said(self) -> Iterator[Message]:
        for turn in self.turns:
            yield from turn.input
            yield turn.output


@dataclass(frozen=True, slots=True)
class Retention:
    """How long rows live, in seconds. A request may ask for `min_s` to `max_s`; silence means `default_s`.

    Each row has a time of its own, and lives longer as long as one lives that continues it.
    """

    default_s: float = 7 * DAY_S
    min_s: float = 60.0
    max_s: float = 90 * DAY_S

    def expires_at(self, created_at: float, requested_s: float | None = None) -> float:
        """When a row made at `created_at` expires. A wish outside the bounds is brought to the nearest one; the edge
        has refused it before it comes here."""
        if requested_s is None:
            return created_at + self.default_s
        return created_at + min(max(requested_s, self.min_s), self.max_s)


def stored_turn(
    request: TurnRequest, outcome: Outcome, *, created_at: float, retention: Retention | None = None
) -> StoredTurn:
    """The row of a turn that succeeded."""
    cut = outcome.stop_reason is StopReason.LENGTH
    row = queued_turn(request, created_at=created_at, retention=retention)
    status = TurnStatus.INCOMPLETE if cut else TurnStatus.COMPLETED
    return msgspec.structs.replace(row, status=status, outcome=outcome)


def queued_turn(request: TurnRequest, *, created_at: float, retention: Retention | None = None) -> StoredTurn:
    """The row of a turn that was accepted and has not run."""
    return StoredTurn(
        id=request.response_id,
        tenant=request.tenant,
        model=request.model,
        previous_response_id=request.previous_response_id,
        created_at=created_at,
        expires_at=(retention or Retention()).expires_at(created_at, request.retention_s),
        status=TurnStatus.QUEUED,
        instructions=request.instructions,
        input=request.input,
        echo=request.echo,
        domain=request.domain,
    )


@dataclass(frozen=True, slots=True)
class Erased:
    """What was deleted: ids of responses and of conversations, and the security domains their KV was computed in."""

    response_ids: tuple[str, ...] = ()
    conversation_ids: tuple[str, ...] = ()
    domains: frozenset[bytes] = field(default=frozenset(), repr=False)


@dataclass(frozen=True, slots=True)
class InUse:
    """What turns that run are about to continue: ids and tenants of responses, and of conversations."""

    responses: Collection[tuple[str, str]] = ()
    conversations: Collection[tuple[str, str]] = ()


class ResponseStore(Protocol):
    """Rows by id, each belonging to one tenant; a foreign id is answered like an unknown one.

    Every method but `close` raises `errors.StoreUnavailable` when the store cannot answer within its timeout, is full,
    or is gone. A driver's own error never escapes. A caller that is cancelled does not cancel the work: a save that was
    begun ends whole or not at all.
    """

    @property
    def runs(self) -> RunLog:
        """Responses that are not finished, and their events."""
        ...

    @property
    def conversations(self) -> ConversationStore:
        """Conversations that are kept as such."""
        ...

    async def save(self, turn: StoredTurn, *, continued: Continued | None = None) -> None:
        """Write a row. It is durable when this returns: neither `kill -9` nor a power cut loses it.

        A row of the same id and tenant is replaced; its events stay. The turn's input and output are added to the
        conversation it `continued` in the same step, if that is still there; once, however often the turn is saved.
        After `StoreUnavailable` all of this may or may not be there, but whole.
        """
        ...

    async def get(self, response_id: str, tenant: str, *, now: float) -> StoredTurn | None:
        """The tenant's row of that id, or None."""
        ...

    async def history(self, response_id: str, tenant: str, *, now: float) -> Chain | None:
        """The chain that ends in `response_id`, in one query. None if that row has expired, or it or any ancestor of it
        is unknown, foreign, deleted or pruned: half a conversation is not one."""
        ...

    async def delete(self, response_id: str, tenant: str) -> bool:
        """Delete the tenant's row of that id; False if there is none. Turns chained on it lose their history."""
        ...

    async def prune(
        self, *, now: float, max_bytes: int | None = None, in_use: Callable[[], InUse] = InUse
    ) -> tuple[str, ...]:
        """Delete what expired more than `HELD_S` ago, then make the rest at most `max_bytes` of payload (None: no cap).
        Returns the ids of the deleted responses, so that what was warm for them can go too. `in_use` tells what turns
        of this server rely on, each time something is to be deleted: it neither expires meanwhile nor goes for the cap.

        For the cap whole conversations go, those first that were used the longest ago: the trees of responses chained
        on each other, and conversation objects. The one used last stays, however large it is. A run that has not ended
        stays, and the tree it is in with it unless its rows expire.
        """
        ...

    async def domains(self, tenant: str) -> frozenset[bytes]:
        """The security domains in which the KV of a tenant's responses was computed."""
        ...

    async def erase(self, tenant: str) -> Erased:
        """Delete everything of a tenant. After `StoreUnavailable` some of it may be left; ask again."""
        ...

    async def close(self) -> None:
        """Wait for work that was begun, then close. Idempotent."""
        ...
