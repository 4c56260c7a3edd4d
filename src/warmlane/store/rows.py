"""Turns and messages to rows and back. Messages and outcomes are MessagePack maps, so a field added later has its
default in old rows."""

from __future__ import annotations

import msgspec
import sqlalchemy as sa

from warmlane.conversation.kept import Conversation, Entry
from warmlane.conversation.messages import Message
from warmlane.conversation.turn import Outcome
from warmlane.store.base import ChainTurn, StoredTurn, TurnStatus
from warmlane.store.schema import conversations, responses

_encoder = msgspec.msgpack.Encoder()
_input_decoder = msgspec.msgpack.Decoder(tuple[Message, ...])
_outcome_decoder = msgspec.msgpack.Decoder(Outcome)
_message_decoder = msgspec.msgpack.Decoder(Message)

ColumnValue = str | float | int | bytes | None


def to_columns(turn: StoredTurn) -> dict[str, ColumnValue]:
    """The column values of a turn, less those that only the store knows. `size_bytes` counts what it says, not the
    database's own overhead."""
    packed_input = _encoder.encode(turn.input)
    packed_outcome = b"" if turn.outcome is None else _encoder.encode(turn.outcome)
    instructions_bytes = len((turn.instructions or "").encode())
    payload_bytes = len(packed_input) + len(packed_outcome) + len(turn.echo) + len(turn.error or b"")
    return {
        "id": turn.id,
        "tenant": turn.tenant,
        "model": turn.model,
        "previous_response_id": turn.previous_response_id,
        "created_at": turn.created_at,
        "expires_at": turn.expires_at,
        "status": turn.status.value,
        "instructions": turn.instructions,
        "input": packed_input,
        "outcome": packed_outcome,
        "echo": turn.echo,
        "error": turn.error,
        "domain": turn.domain,
        "size_bytes": payload_bytes + instructions_bytes,
    }


def to_turn(row: sa.RowMapping) -> StoredTurn:
    """The turn of a full row. Raises `msgspec.MsgspecError` if it holds something else."""
    outcome = row[responses.c.outcome]
    return StoredTurn(
        id=row[responses.c.id],
        tenant=row[responses.c.tenant],
        model=row[responses.c.model],
        previous_response_id=row[responses.c.previous_response_id],
        created_at=row[responses.c.created_at],
        expires_at=row[responses.c.expires_at],
        status=TurnStatus(row[responses.c.status]),
        instructions=row[responses.c.instructions],
        input=_input_decoder.decode(row[responses.c.input]),
        outcome=_outcome_decoder.decode(outcome) if outcome else None,
        echo=row[responses.c.echo],
        error=row[responses.c.error],
        domain=row[responses.c.domain],
    )


def to_chain_turn(row: sa.RowMapping) -> ChainTurn | None:
    """The turn of a history row; None if it has no outcome. Raises `msgspec.MsgspecError` if it holds something
    else."""
    outcome = row[responses.c.outcome]
    if not outcome:
        return None
    return ChainTurn(
        id=row[responses.c.id],
        model=row[responses.c.model],
        input=_input_decoder.decode(row[responses.c.input]),
        output=_outcome_decoder.decode(outcome).message,
    )


def to_conversation(row: sa.RowMapping) -> Conversation:
    return Conversation(
        id=row[conversations.c.id],
        tenant=row[conversations.c.tenant],
        created_at=row[conversations.c.created_at],
        used_at=row[conversations.c.used_at],
        metadata=row[conversations.c.metadata],
        revision=row[conversations.c.revision],
        last_response_id=row[conversations.c.last_response_id],
    )


def to_entry(entry_id: str, packed: bytes) -> Entry:
    """Raises `msgspec.MsgspecError` if `packed` is something else than a message."""
    return Entry(entry_id, _message_decoder.decode(packed))


def pack_message(message: Message) -> bytes:
    return _encoder.encode(message)


def turn_entries(turn: StoredTurn) -> tuple[Entry, ...]:
    """What a turn adds to its conversation."""
    said = turn.input if turn.outcome is None else (*turn.input, turn.outcome.message)
    return tuple(Entry(f"{turn.id}_{index:04x}", message) for index, message in enumerate(said))
