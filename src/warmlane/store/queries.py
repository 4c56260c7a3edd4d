"""The SQL of the response store, portable between SQLite (3.35 or newer) and PostgreSQL."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from enum import StrEnum

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from warmlane.store.base import HELD_S
from warmlane.store.schema import conversations, responses

MAX_CHAIN_TURNS = 100_000
"""Where the recursion gives up, so that a damaged row that is its own ancestor cannot loop for ever."""


def live_row(response_id: str, tenant: str, now: float) -> sa.Select[tuple[object, ...]]:
    """The tenant's row of that id, unless it expired."""
    return sa.select(responses).where(is_live(response_id, tenant, now))


def is_row(response_id: str, tenant: str) -> sa.ColumnElement[bool]:
    return sa.and_(responses.c.id == response_id, responses.c.tenant == tenant)


def in_lock_order(table: sa.Table, condition: sa.ColumnElement[bool]) -> sa.Select[tuple[str]]:
    """Locks rows until the transaction ends, always in the order of their ids: nobody who locks several then waits for
    one that another holds who waits for theirs. The order is the database's own: what comes first may differ here."""
    return sa.select(table.c.id).where(condition).order_by(table.c.id).with_for_update()


def is_live(response_id: str, tenant: str, now: float) -> sa.ColumnElement[bool]:
    """The tenant's row of that id, if its time is not up, or something that continues it lives."""
    below = (
        sa.select(responses.c.id, responses.c.expires_at, responses.c.seen_at)
        .where(responses.c.previous_response_id == response_id, responses.c.tenant == tenant)
        .cte("below", recursive=True)
    )
    further = responses.alias("further")
    below = below.union(
        sa.select(further.c.id, further.c.expires_at, further.c.seen_at)
        .join(below, further.c.previous_response_id == below.c.id)
        .where(further.c.tenant == tenant)
    )
    # Only asked where the row's own time is up.
    continued = sa.exists().where(sa.or_(below.c.expires_at >= now, below.c.seen_at.is_not(None)))
    return sa.and_(is_row(response_id, tenant), sa.or_(responses.c.expires_at >= now, continued))


def chain_rows(response_id: str, tenant: str, now: float) -> sa.Select[tuple[object, ...]]:
    """The row, if it lives, and all its ancestors of the same tenant, oldest first: they live as long as it does.

    The chain is whole iff the first row has no `previous_response_id`.
    """
    tip = (
        sa.select(responses.c.id, responses.c.previous_response_id, sa.literal(0).label("age"))
        .where(is_live(response_id, tenant, now))
        .cte("chain", recursive=True)
    )
    chain = tip.union_all(
        sa.select(responses.c.id, responses.c.previous_response_id, tip.c.age + 1)
        .join(tip, responses.c.id == tip.c.previous_response_id)
        .where(responses.c.tenant == tenant, tip.c.age < MAX_CHAIN_TURNS)
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


def chain_of(response_id: str, previous_response_id: str | None, tenant: str) -> sa.ColumnElement[str]:
    """The tree a new row belongs to: that of the row it continues, if that one is stored."""
    itself = sa.literal(response_id, responses.c.chain.type)
    if previous_response_id is None:
        return itself
    parent = sa.select(responses.c.chain).where(is_row(previous_response_id, tenant)).scalar_subquery()
    return sa.func.coalesce(parent, itself)


def is_unfinished() -> sa.ColumnElement[bool]:
    """Whether a server works on the row. Asked of the column that the index of chains has, too."""
    return responses.c.seen_at.is_not(None)


def expired(now: float) -> sa.ColumnElement[bool]:
    """The rows to delete: what was up `HELD_S` ago and nothing that lives continues. Those that are worked on go once
    they have ended."""
    child = responses.alias("child")
    return sa.and_(responses.c.expires_at < now - HELD_S, ~is_unfinished(), ~sa.exists().where(_keeps(child, now)))


def outlived(now: float, *, limit: int) -> sa.Select[tuple[str, float]]:
    """Rows whose time is up though something that lives continues them, directly or not, each with a time until which
    that does; in the order of `in_lock_order`. Found from the end of conversations to their beginning, at most `limit`
    of them, of which some may be told more than once and are then told of the others later."""
    child, parent = responses.alias("child"), responses.alias("parent")
    until = sa.case((child.c.seen_at.is_not(None), now + HELD_S), else_=child.c.expires_at)
    up = (
        sa.select(responses.c.id, responses.c.previous_response_id, responses.c.tenant, until.label("until"))
        .join(child, _keeps(child, now))
        .where(responses.c.expires_at < now)
        .cte("up", recursive=True)
    )
    up = up.union_all(
        sa.select(parent.c.id, parent.c.previous_response_id, parent.c.tenant, up.c.until)
        .join(up, sa.and_(parent.c.id == up.c.previous_response_id, parent.c.tenant == up.c.tenant))
        .where(parent.c.expires_at < now)
    )
    some = sa.select(up.c.id, up.c.until).limit(limit).subquery("some")
    return sa.select(some.c.id, sa.func.max(some.c.until).label("until")).group_by(some.c.id).order_by(some.c.id)


def _keeps(child: sa.FromClause, now: float) -> sa.ColumnElement[bool]:
    """Whether `child` continues the row, and lives or is worked on."""
    continues = sa.and_(child.c.previous_response_id == responses.c.id, child.c.tenant == responses.c.tenant)
    return sa.and_(continues, sa.or_(child.c.expires_at >= now, child.c.seen_at.is_not(None)))


def is_one_of(table: sa.FromClause, rows: Collection[tuple[str, str]]) -> sa.ColumnElement[bool]:
    """Whether a row of the table is among these, told by id and tenant."""
    return sa.tuple_(table.c.id, table.c.tenant).in_(rows)


def in_idle_chains(chains: Sequence[str], in_use: Collection[tuple[str, str]]) -> sa.ColumnElement[bool]:
    """The rows of those of the chains in which nothing is worked on or `in_use`, told by id and tenant."""
    other = responses.alias("other")
    busy = sa.or_(other.c.seen_at.is_not(None), is_one_of(other, in_use))
    return sa.and_(responses.c.chain.in_(chains), ~sa.exists().where(other.c.chain == responses.c.chain, busy))


def insert_missing(table: sa.Table, dialect: sa.Dialect) -> sqlite.Insert | postgresql.Insert:
    """An insert that leaves alone the rows that are there."""
    insert = postgresql.insert if dialect.name == "postgresql" else sqlite.insert
    return insert(table).on_conflict_do_nothing()


class Unit(StrEnum):
    """What goes as a whole when the store is too large."""

    CHAIN = "chain"
    CONVERSATION = "conversation"


def units_beyond(max_bytes: int) -> sa.Select[tuple[str, str]]:
    """Kind and id of the units beyond `max_bytes` of payload: those that are worked on are kept first, then those used
    last; the former and the very last always."""
    trees = sa.select(
        sa.literal(Unit.CHAIN.value).label("kind"),
        responses.c.chain.label("unit"),
        sa.func.sum(responses.c.size_bytes + responses.c.events_bytes).label("bytes"),
        sa.func.max(sa.func.coalesce(responses.c.seen_at, responses.c.created_at)).label("used_at"),
        sa.func.max(sa.case((is_unfinished(), 1), else_=0)).label("works"),
    ).group_by(responses.c.chain)
    kept = sa.select(
        sa.literal(Unit.CONVERSATION.value),
        conversations.c.id,
        conversations.c.size_bytes,
        conversations.c.used_at,
        sa.literal(0),
    )
    units = sa.union_all(trees, kept).subquery("units")
    last_first = (units.c.works.desc(), units.c.used_at.desc(), units.c.kind, units.c.unit.desc())
    ranked = sa.select(
        units.c.kind,
        units.c.unit,
        units.c.works,
        sa.func.sum(units.c.bytes).over(order_by=last_first).label("total_bytes"),
        sa.func.row_number().over(order_by=last_first).label("place"),
    ).subquery("ranked")
    beyond = sa.and_(ranked.c.total_bytes > max_bytes, ranked.c.place > 1, ranked.c.works == 0)
    return sa.select(ranked.c.kind, ranked.c.unit).where(beyond)
