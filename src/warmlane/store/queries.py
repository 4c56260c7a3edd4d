"""The SQL of the response store, portable between SQLite (3.35 or newer) and PostgreSQL."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.sql.dml import ReturningDelete

from warmlane.store.schema import responses

MAX_CHAIN_TURNS = 100_000
"""Where the recursion gives up, so that a damaged row that is its own ancestor cannot loop for ever."""


def live_row(response_id: str, tenant: str, now: float) -> sa.Select[tuple[object, ...]]:
    """The tenant's row of that id, unless it expired."""
    return sa.select(responses).where(
        responses.c.id == response_id, responses.c.tenant == tenant, responses.c.expires_at >= now
    )


def chain_rows(response_id: str, tenant: str, now: float) -> sa.Select[tuple[object, ...]]:
    """The row and all its live ancestors of the same tenant, oldest first.

    The chain is whole iff the first row has no `previous_response_id`.
    """
    tip = (
        sa.select(responses.c.id, responses.c.previous_response_id, sa.literal(0).label("age"))
        .where(responses.c.id == response_id, responses.c.tenant == tenant, responses.c.expires_at >= now)
        .cte("chain", recursive=True)
    )
    chain = tip.union_all(
        sa.select(responses.c.id, responses.c.previous_response_id, tip.c.age + 1)
        .join(tip, responses.c.id == tip.c.previous_response_id)
        .where(responses.c.tenant == tenant, responses.c.expires_at >= now, tip.c.age < MAX_CHAIN_TURNS)
    )
    return (
        sa.select(
            responses.c.id,
            responses.c.model,
            responses.c.previous_response_id,
            responses.c.input,
            responses.c.outcome,
        )
        .join(chain, responses.c.id == chain.c.id)
        .order_by(chain.c.age.desc())
    )


def delete_row(response_id: str, tenant: str) -> sa.Delete:
    return sa.delete(responses).where(responses.c.id == response_id, responses.c.tenant == tenant)


def delete_expired(now: float) -> ReturningDelete[str]:
    """Returns the ids it deleted."""
    return sa.delete(responses).where(responses.c.expires_at < now).returning(responses.c.id)


def delete_beyond(max_bytes: int) -> ReturningDelete[str]:
    """Delete the oldest rows beyond `max_bytes` of payload, newest kept first; returns the ids it deleted."""
    newest_first = (responses.c.created_at.desc(), responses.c.id.desc())
    running = sa.select(
        responses.c.id, sa.func.sum(responses.c.size_bytes).over(order_by=newest_first).label("total_bytes")
    ).subquery("running")
    beyond = sa.select(running.c.id).where(running.c.total_bytes > max_bytes)
    return sa.delete(responses).where(responses.c.id.in_(beyond)).returning(responses.c.id)
