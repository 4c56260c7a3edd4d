"""Turns to rows and back. Messages and outcomes are MessagePack maps, so a field added later has its default in old
rows."""

from __future__ import annotations

import msgspec
import sqlalchemy as sa

from warmlane.conversation.messages import Message
from warmlane.conversation.turn import Outcome
from warmlane.store.base import ChainTurn, StoredTurn, TurnStatus
from warmlane.store.schema import responses

_encoder = msgspec.msgpack.Encoder()
_input_decoder = msgspec.msgpack.Decoder(tuple[Message, ...])
_outcome_decoder = msgspec.msgpack.Decoder(Outcome)

ColumnValue = str | float | int | bytes | None


def to_columns(turn: StoredTurn) -> dict[str, ColumnValue]:
    """The column values of a turn. `size_bytes` counts what it says, not the database's own overhead."""
    packed_input = _encoder.encode(turn.input)
    packed_outcome = _encoder.encode(turn.outcome)
    instructions_bytes = len((turn.instructions or "").encode())
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
        "size_bytes": len(packed_input) + len(packed_outcome) + len(turn.echo) + instructions_bytes,
    }


def to_turn(row: sa.RowMapping) -> StoredTurn:
    """The turn of a full row. Raises `msgspec.MsgspecError` if it holds something else."""
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
        outcome=_outcome_decoder.decode(row[responses.c.outcome]),
        echo=row[responses.c.echo],
    )


def to_chain_turn(row: sa.RowMapping) -> ChainTurn:
    """The turn of a history row. Raises `msgspec.MsgspecError` if it holds something else."""
    return ChainTurn(
        id=row[responses.c.id],
        model=row[responses.c.model],
        input=_input_decoder.decode(row[responses.c.input]),
        output=_outcome_decoder.decode(row[responses.c.outcome]).message,
    )
