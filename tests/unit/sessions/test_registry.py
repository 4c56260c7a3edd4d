"""Warm sessions: tiers, reasons, expiry, adoption. Each test is named after the rule it shows."""

from __future__ import annotations

import logging
from contextlib import aclosing

import pytest

from support.turns import Desk, assistant, user
from warmlane.conversation.messages import Message, Role, Text
from warmlane.errors import SessionBusy, SessionError
from warmlane.sessions import MissReason, SessionRegistry

KEY = "the key of an agent"
BOTH = pytest.mark.parametrize("capacity", [1, 4], ids=["flat", "paged"])


# the single-warm invariant and the pool


async def test_every_lookup_on_a_flat_engine_empties_the_registry() -> None:
    desk = Desk(capacity=1)
    first, _ = await desk.turn(desk.query("a"))
    assert len(desk.registry) == 1
    lease = desk.registry.lease(desk.query("b", previous="unknown"))
    assert len(desk.registry) == 0
    assert lease.started == [first.session]
    assert desk.registry.evictions == 1


async def test_adopting_on_a_flat_engine_leaves_one_entry() -> None:
    desk = Desk(capacity=1)
    one, two = desk.registry.lease(desk.query("a")), desk.registry.lease(desk.query("b"))
    for lease in (one, two):
        await desk.run(lease)
        desk.registry.adopt(lease)
        assert len(desk.registry) == 1
    assert desk.registry.warm_sessions(None)[0].id == "b"


async def test_a_miss_on_a_flat_engine_resets_the_native_cache_before_prefill() -> None:
    desk = Desk(capacity=1)
    await desk.turn(desk.query("a"))
    assert [op for op, _ in desk.engine.log] == ["reset", "generate"]
    desk.engine.log.clear()
    await desk.turn(desk.query("b", previous="a"))
    assert [op for op, _ in desk.engine.log] == ["generate"]
    desk.engine.log.clear()
    await desk.turn(desk.query("c"))
    assert [op for op, _ in desk.engine.log] == ["release", "reset", "generate"]


async def test_a_lookup_in_a_pool_removes_only_what_it_leases() -> None:
    desk = Desk()
    for name in ("a", "b", "c"):
        await desk.turn(desk.query(name))
    lease = desk.registry.lease(desk.query("d", previous="b"))
    assert lease.hit
    assert {warm.id for warm in desk.registry.warm_sessions(None)} == {"a", "c"}
    assert desk.engine.log.count(("reset", None)) == 0


async def test_a_full_pool_evicts_the_least_recently_used_of_the_tenant_that_holds_most() -> None:
    desk = Desk(warm_capacity=4)
    await desk.turn(desk.query("b1", tenant="bob"))
    for name in ("a1", "a2", "a3"):
        await desk.turn(desk.query(name))
    await desk.turn(desk.query("a1'", previous="a1"))
    await desk.turn(desk.query("b2", tenant="bob"))
    assert [warm.id for warm in desk.registry.warm_sessions("ann")] == ["a3", "a1'"]
    assert [warm.id for warm in desk.registry.warm_sessions("bob")] == ["b1", "b2"]
    assert desk.registry.lease(desk.query(previous="a2")).reason is MissReason.EVICTED


async def test_among_tenants_that_hold_as_many_the_oldest_entry_goes() -> None:
    desk = Desk(warm_capacity=2)
    for tenant in ("ann", "bob", "cy"):
        await desk.turn(desk.query(f"of {tenant}", tenant=tenant))
        desk.clock.advance(1)
    assert [warm.id for warm in desk.registry.warm_sessions(None)] == ["of bob", "of cy"]


# leases


@BOTH
async def test_a_hit_hands_the_session_to_one_caller_and_the_second_is_busy(capacity: int) -> None:
    desk = Desk(capacity=capacity)
    first, _ = await desk.turn(desk.query("a"))
    one = desk.registry.lease(desk.query("b", previous="a"))
    two = desk.registry.lease(desk.query("c", previous="a"))
    assert (one.hit, one.session) == (True, first.session)
    assert (two.hit, two.reason) == (False, MissReason.BUSY)
    assert two.session is not one.session


async def test_a_chain_hits_again_and_again() -> None:
    desk = Desk()
    previous = None
    for n in range(10):
        lease, _ = await desk.turn(desk.query(f"r{n}", previous=previous))
        assert lease.hit == (n > 0)
        previous = f"r{n}"
    assert (desk.registry.hits, desk.registry.misses) == (9, {MissReason.NO_KEY: 1})
    assert len(desk.registry) == 1


async def test_a_lease_ends_once() -> None:
    desk = Desk()
    lease, _ = await desk.turn(desk.query("a"))
    with pytest.raises(SessionError, match="ended"):
        desk.registry.adopt(lease)
    with pytest.raises(SessionError, match="ended"):
        await desk.registry.give_back(lease)
    with pytest.raises(SessionError, match="ended"):
        await desk.registry.abandon(lease)


async def test_only_a_settled_turn_can_be_adopted() -> None:
    desk = Desk()
    lease = desk.registry.lease(desk.query("a"))
    events = lease.session.generate((1,))
    await anext(events)
    with pytest.raises(SessionBusy):
        desk.registry.adopt(lease)
    await events.aclose()
    with pytest.raises(SessionError, match="Commit"):
        desk.registry.adopt(lease)
    await desk.registry.give_back(lease)


# tier 1


@BOTH
@pytest.mark.parametrize(("had", "asks"), [("x", "y"), (None, ""), ("", None), ("x", "x ")])
async def test_instructions_must_be_equal_byte_for_byte(capacity: int, had: str | None, asks: str | None) -> None:
    desk = Desk(capacity=capacity)
    await desk.turn(desk.query("a", instructions=had))
    assert desk.registry.lease(desk.query(previous="a", instructions=asks)).reason is MissReason.INSTRUCTIONS_CHANGED


async def test_equal_instructions_hit() -> None:
    desk = Desk()
    await desk.turn(desk.query("a", instructions="be brief"))
    assert desk.registry.lease(desk.query(previous="a", instructions="be brief")).hit


@pytest.mark.parametrize(("had", "asks"), [(None, "s"), ("s", None), ("s", "t")])
async def test_another_salt_misses(had: str | None, asks: str | None) -> None:
    desk = Desk()
    await desk.turn(desk.query("a", salt=had))
    lease = desk.registry.lease(desk.query(previous="a", salt=asks, instructions="also changed"))
    assert lease.reason is MissReason.SALT_CHANGED


@BOTH
async def test_a_supplied_id_wins_and_never_falls_through_to_the_key(capacity: int) -> None:
    desk = Desk(capacity=capacity)
    await desk.turn(desk.query("a", key=KEY, history=(user("x"),)))
    lease = desk.registry.lease(desk.query("b", previous="unknown", key=KEY, history=(user("x"),)))
    assert (lease.hit, lease.reason) == (False, MissReason.UNKNOWN_ID)


async def test_a_request_with_an_id_never_adopts_under_a_key() -> None:
    desk = Desk()
    await desk.turn(desk.query("a", previous="unknown", key=KEY, history=(user("x"),)))
    assert desk.registry.lease(desk.query(key=KEY, history=(user("x"),))).reason is MissReason.UNKNOWN_KEY


async def test_an_id_says_what_became_of_it() -> None:
    desk = Desk()
    for name in ("a", "b", "c"):
        await desk.turn(desk.query(name))
    await desk.turn(desk.query("a'", previous="a"))
    desk.registry.drop("b", tenant="ann")
    desk.registry.clear()
    reasons = {name: desk.registry.lease(desk.query(previous=name)).reason for name in ("a", "b", "c", "d")}
    assert reasons == {
        "a": MissReason.HISTORY_DIVERGED,
        "b": MissReason.DELETED,
        "c": MissReason.EVICTED,
        "d": MissReason.UNKNOWN_ID,
    }


async def test_an_id_of_another_model_says_so_if_the_caller_knows() -> None:
    desk = Desk()
    assert desk.registry.lease(desk.query(previous="x", other_model=True)).reason is MissReason.MODEL_CHANGED


# tenants


@BOTH
@pytest.mark.parametrize("state", ["warm", "leased", "deleted", "never"])
async def test_to_a_foreign_tenant_every_reason_is_unknown_id(capacity: int, state: str) -> None:
    desk = Desk(capacity=capacity)
    if state != "never":
        await desk.turn(desk.query("a"))
    if state == "leased":
        desk.registry.lease(desk.query("b", previous="a"))
    elif state == "deleted":
        desk.registry.drop("a", tenant="ann")
    assert desk.registry.peek("a", tenant="bob", domain=desk.secrets.domain("bob")) is None
    assert not desk.registry.drop("a", tenant="bob")
    assert desk.registry.warm_sessions("bob") == []
    lease = desk.registry.lease(desk.query(previous="a", tenant="bob"))
    assert lease.reason is MissReason.UNKNOWN_ID
    true = {
        "warm": MissReason.SALT_CHANGED,
        "leased": MissReason.BUSY,
        "deleted": MissReason.DELETED,
        "never": MissReason.UNKNOWN_ID,
    }[state]
    assert lease.true_reason is true
    assert desk.registry.misses[true] >= 1


async def test_a_foreign_lookup_leaves_a_pool_alone() -> None:
    desk = Desk()
    await desk.turn(desk.query("a"))
    desk.registry.lease(desk.query(previous="a", tenant="bob"))
    assert desk.registry.lease(desk.query(previous="a")).hit


async def test_an_admin_sees_and_drops_all() -> None:
    desk = Desk()
    await desk.turn(desk.query("a"), tokens=9)
    await desk.turn(desk.query("b", tenant="bob"))
    desk.clock.advance(3)
    assert [(w.id, w.age_s, w.tokens) for w in desk.registry.warm_sessions(None)] == [("a", 3, 9), ("b", 3, 4)]
    assert desk.registry.drop("b", tenant=None)
    assert [w.id for w in desk.registry.warm_sessions(None)] == ["a"]


# tier 2


@BOTH
async def test_a_key_hit_yields_kv_and_is_rebased_to_the_requests_history(capacity: int) -> None:
    desk = Desk(capacity=capacity)
    first, _ = await desk.turn(desk.query("a", key=KEY, history=(user("x"),)))
    asked = (user("x"), assistant("something else"), user("y"))
    lease = desk.registry.lease(desk.query("b", key=KEY, history=asked))
    assert lease.hit
    assert lease.session is first.session
    assert lease.session.history == asked


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        (None, MissReason.NO_KEY),
        ("", MissReason.KEY_INELIGIBLE),
        ("short", MissReason.KEY_INELIGIBLE),
        (KEY, MissReason.UNKNOWN_KEY),
    ],
)
async def test_no_key_on_both_sides_is_not_a_match(key: str | None, reason: MissReason) -> None:
    desk = Desk()
    for n in range(2):
        lease, _ = await desk.turn(desk.query(f"r{n}", key=key, history=(user(str(n)),)))
        assert (lease.hit, lease.reason) == (False, reason if n == 0 or key != KEY else MissReason.HISTORY_DIVERGED)


async def test_a_key_says_why_it_missed() -> None:
    desk = Desk()
    history = (user("x"),)
    await desk.turn(desk.query("a", key=KEY, history=history))

    def reason(**changed: str) -> MissReason:
        return desk.registry.lease(desk.query(key=KEY, history=history, **changed)).reason  # type: ignore[arg-type]

    assert reason(salt="s") is MissReason.SALT_CHANGED
    assert reason(instructions="i") is MissReason.INSTRUCTIONS_CHANGED
    assert reason(tenant="bob") is MissReason.UNKNOWN_KEY
    lease = desk.registry.lease(desk.query(key=KEY, history=history))
    assert lease.hit
    assert reason() is MissReason.BUSY
    await desk.registry.abandon(lease)
    assert reason() is MissReason.EVICTED


async def test_of_several_matches_the_longest_shared_prefix_is_leased() -> None:
    desk = Desk()
    long = (user("x"), assistant("ok"), user("main"))
    await desk.turn(desk.query("main", key=KEY, history=long))
    await desk.turn(desk.query("side", key=KEY, history=(user("x"), assistant("ok"), user("side"))))
    assert len(desk.registry) == 1, "the second turn went on from the first"
    other, _ = await desk.turn(desk.query("new", key=KEY, history=(user("else"),)))
    assert other.reason is MissReason.HISTORY_DIVERGED
    lease = desk.registry.lease(desk.query(key=KEY, history=(*long, assistant("no"))))
    assert lease.source is not None
    assert lease.source.id == "side"


async def test_a_key_shared_by_a_main_agent_and_its_helpers() -> None:
    """Each goes back to its own conversation; the system prompt they share is none."""
    desk = Desk()
    system = Message(Role.SYSTEM, (Text("you are an agent"),))
    histories = {name: (system, user(f"task of {name}")) for name in ("main", "helper 1", "helper 2")}
    sessions = {}
    for name, history in histories.items():
        lease, _ = await desk.turn(desk.query(name, key=KEY, history=history))
        assert not lease.hit
        sessions[name] = lease.session
    for name in ("helper 2", "main", "helper 1"):
        again = (*histories[name], assistant("ok"), user("go on"))
        lease, _ = await desk.turn(desk.query(f"{name}'", key=KEY, history=again))
        assert lease.session is sessions[name]


async def test_the_key_switch_is_applied_at_adopt_and_at_lookup() -> None:
    desk = Desk(key_reuse=False)
    history = (user("x"),)
    await desk.turn(desk.query("off", key=KEY, history=history))
    desk.registry.key_reuse = True
    assert desk.registry.lease(desk.query(key=KEY, history=history)).reason is MissReason.UNKNOWN_KEY
    await desk.turn(desk.query("on", key=KEY, history=history))
    desk.registry.key_reuse = False
    assert desk.registry.lease(desk.query(key=KEY, history=history)).reason is MissReason.KEY_INELIGIBLE
    desk.registry.key_reuse = True
    assert desk.registry.lease(desk.query(key=KEY, history=history)).hit


async def test_an_ineligible_key_warns_once_never_with_an_id_and_never_in_clear(
    caplog: pytest.LogCaptureFixture,
) -> None:
    desk = Desk()
    other = SessionRegistry(desk.engine, secrets=desk.secrets, clock=desk.clock, defaults=desk.registry.defaults)
    with caplog.at_level(logging.WARNING):
        desk.registry.lease(desk.query(previous="a", key="sesame"))
        assert not caplog.records
        desk.registry.lease(desk.query(key=""))
        assert not caplog.records
        desk.registry.lease(desk.query(key="sesame"))
        other.lease(desk.query(key="sesame"))
    assert len(caplog.records) == 1
    assert "sesame" not in caplog.text


async def test_raw_keys_and_texts_stay_out_of_reprs() -> None:
    desk = Desk()
    query = desk.query("a", key=KEY, history=(user("a secret"),))
    lease, _ = await desk.turn(query)
    entry = desk.registry.lease(desk.query(previous="a")).source
    shown = f"{query!r} {lease!r} {entry!r}"
    assert KEY not in shown
    assert "secret" not in shown


# tier 3


async def test_stateless_requests_lease_the_one_entry_of_a_flat_engine() -> None:
    desk = Desk(capacity=1)
    first, _ = await desk.turn(desk.query("a", stateless=True, history=(user("x"),)))
    assert first.reason is MissReason.FRESH
    asked = (user("x"), assistant("ok"), user("y"))
    lease = desk.registry.lease(desk.query("b", stateless=True, key=KEY, history=asked))
    assert lease.hit
    assert lease.session is first.session
    assert lease.session.history == asked


async def test_stateless_requests_lease_what_was_adopted_under_an_id() -> None:
    desk = Desk(capacity=1)
    await desk.turn(desk.query("a"))
    assert desk.registry.lease(desk.query(stateless=True)).hit


@pytest.mark.parametrize("name", ["a", "stateless", "\x00", ""])
async def test_a_stateless_session_is_adopted_under_an_id_no_client_can_produce(name: str) -> None:
    desk = Desk(capacity=1)
    await desk.turn(desk.query("a", stateless=True))
    assert desk.registry.peek(name, tenant="ann", domain=desk.secrets.domain("ann")) is None
    assert not desk.registry.lease(desk.query(previous=name)).hit


async def test_a_stateless_session_is_listed_and_can_be_ended() -> None:
    desk = Desk(capacity=1)
    await desk.turn(desk.query("a", stateless=True))
    assert [warm.id for warm in desk.registry.warm_sessions("ann")] == ["stateless"]
    assert not desk.registry.drop("stateless", tenant="bob")
    assert desk.registry.drop("stateless", tenant="ann")
    assert len(desk.registry) == 0


@pytest.mark.parametrize(
    ("salt", "instructions", "reason"),
    [("s", None, MissReason.SALT_CHANGED), (None, "i", MissReason.INSTRUCTIONS_CHANGED)],
)
async def test_tier_3_asks_for_equal_domain_and_instructions(
    salt: str | None, instructions: str | None, reason: MissReason
) -> None:
    desk = Desk(capacity=1)
    await desk.turn(desk.query("a", stateless=True))
    assert desk.registry.lease(desk.query(stateless=True, salt=salt, instructions=instructions)).reason is reason


async def test_tier_3_tells_a_foreign_tenant_nothing() -> None:
    desk = Desk(capacity=1)
    await desk.turn(desk.query("a", stateless=True))
    lease = desk.registry.lease(desk.query(stateless=True, tenant="bob"))
    assert (lease.reason, lease.true_reason) == (MissReason.FRESH, MissReason.SALT_CHANGED)


async def test_on_a_paged_engine_stateless_requests_are_fresh_and_not_retained() -> None:
    desk = Desk()
    await desk.turn(desk.query("a"))
    lease, adoption = await desk.turn(desk.query("b", stateless=True))
    assert lease.reason is MissReason.FRESH
    assert not adoption.warm
    assert [warm.id for warm in desk.registry.warm_sessions(None)] == ["a"]
    assert lease.session.disposed


# expiry


@BOTH
@pytest.mark.parametrize(("retention_s", "lasts_s"), [(None, 1800), (60, 60), (9000, 1800), (0, 0)])
async def test_expiry_is_the_lesser_of_ttl_and_retention_and_strict(
    capacity: int, retention_s: float | None, lasts_s: float
) -> None:
    for late, reason in ((0.0, MissReason.HIT), (0.001, MissReason.EXPIRED)):
        desk = Desk(capacity=capacity)
        await desk.turn(desk.query("a"), retention_s=retention_s)
        desk.clock.advance(lasts_s + late)
        warm = desk.registry.peek("a", tenant="ann", domain=desk.secrets.domain("ann"))
        assert (warm is not None) == (reason is MissReason.HIT)
        lease = desk.registry.lease(desk.query(previous="a"))
        assert lease.reason is reason
        assert len(lease.started) == (reason is MissReason.EXPIRED)
        assert len(desk.registry) == 0


async def test_an_expired_entry_met_by_key_is_removed_and_disposed_there() -> None:
    desk = Desk()
    await desk.turn(desk.query("a", key=KEY, history=(user("x"),)))
    desk.clock.advance(1801)
    lease = desk.registry.lease(desk.query(key=KEY, history=(user("x"),)))
    assert lease.reason is MissReason.EXPIRED
    assert (len(desk.registry), len(lease.started)) == (0, 1)


async def test_adopting_again_refreshes_the_expiry() -> None:
    desk = Desk()
    await desk.turn(desk.query("a"))
    desk.clock.advance(1000)
    await desk.turn(desk.query("b", previous="a"))
    desk.clock.advance(1800)
    assert desk.registry.lease(desk.query(previous="b")).hit


async def test_sweep_drops_the_expired() -> None:
    desk = Desk()
    await desk.turn(desk.query("a"), retention_s=10)
    await desk.turn(desk.query("b"))
    desk.clock.advance(11)
    assert [warm.id for warm in desk.registry.warm_sessions("ann")] == ["b"]
    desk.registry.sweep()
    assert len(desk.registry) == 1
    assert desk.registry.lease(desk.query(previous="a")).reason is MissReason.EXPIRED


# peek


async def test_peek_gives_an_immutable_history_and_changes_nothing() -> None:
    desk = Desk()
    await desk.turn(desk.query("a", history=(user("x"),)), tokens=7)
    warm = desk.registry.peek("a", tenant="ann", domain=desk.secrets.domain("ann"))
    assert warm is not None
    assert (warm.history, warm.tokens, warm.same_domain) == ((user("x"), assistant("ok")), 7, True)
    salted = desk.registry.peek("a", tenant="ann", domain=desk.secrets.domain("ann", "s"))
    assert salted is not None
    assert not salted.same_domain
    assert desk.registry.lease(desk.query(previous="a")).hit


async def test_two_requests_that_peeked_one_id_are_both_answered_and_one_leases() -> None:
    desk = Desk()
    await desk.turn(desk.query("a", history=(user("x"),)))
    domain = desk.secrets.domain("ann")
    peeked = [desk.registry.peek("a", tenant="ann", domain=domain) for _ in range(2)]
    leases = [desk.registry.lease(desk.query(f"r{n}", previous="a")) for n in range(2)]
    assert [lease.reason for lease in leases] == [MissReason.HIT, MissReason.BUSY]
    assert peeked[0] == peeked[1] == desk.registry.peek("a", tenant="ann", domain=domain)
    await desk.run(leases[0])
    desk.registry.adopt(leases[0])
    assert desk.registry.peek("a", tenant="ann", domain=domain) is None


# adoption


async def test_adopt_disposes_a_displaced_entry_but_never_the_session_itself() -> None:
    desk = Desk()
    first, _ = await desk.turn(desk.query("a"))
    second, _ = await desk.turn(desk.query("a"))
    assert first.session.disposed
    assert len(desk.registry) == 1
    third, _ = await desk.turn(desk.query("a", previous="a"))
    assert third.session is second.session
    assert not third.session.disposed


@pytest.mark.parametrize("accepted", [True, False])
async def test_an_adoption_that_was_not_accepted_is_revoked(accepted: bool) -> None:
    desk = Desk()
    lease = desk.registry.lease(desk.query("a"))
    await desk.run(lease)
    adoption = desk.registry.adopt(lease)
    assert adoption.warm
    if accepted:
        adoption.keep()
    adoption.revoke()
    await desk.registry.flush_before_leave(lease)
    assert len(desk.registry) == int(accepted)
    assert lease.session.disposed != accepted


async def test_an_adoption_somebody_has_leased_since_is_not_revoked() -> None:
    desk = Desk()
    lease = desk.registry.lease(desk.query("a"))
    await desk.run(lease)
    adoption = desk.registry.adopt(lease)
    chained = desk.registry.lease(desk.query("b", previous="a"))
    assert chained.hit
    adoption.revoke()
    assert await desk.registry.give_back(chained)
    adoption.revoke()
    assert desk.registry.lease(desk.query(previous="a")).hit


@BOTH
@pytest.mark.parametrize("dropped", ["leased from", "about to adopt"])
async def test_a_delete_during_a_turn_is_remembered_until_it_settles(capacity: int, dropped: str) -> None:
    """No resurrection: the turn's session is disposed, whichever of its two ids was deleted."""
    desk = Desk(capacity=capacity)
    await desk.turn(desk.query("a"))
    lease = desk.registry.lease(desk.query("b", previous="a"))
    assert desk.registry.drop("a" if dropped == "leased from" else "b", tenant="ann")
    await desk.run(lease)
    assert not desk.registry.adopt(lease).warm
    await desk.registry.flush_before_leave(lease)
    assert lease.session.disposed
    assert len(desk.registry) == 0
    assert desk.engine.purged == [lease.session.owner]
    assert desk.registry.lease(desk.query(previous="b")).reason is MissReason.DELETED


async def test_a_delete_drops_the_cells_and_an_eviction_leaves_them_to_share() -> None:
    desk = Desk()
    for name in ("a", "b"):
        await desk.turn(desk.query(name))
    assert desk.registry.drop("a", tenant="ann")
    await desk.registry.flush_disposals()
    assert len(desk.engine.purged) == 1
    desk.registry.clear()
    await desk.registry.flush_disposals()
    assert len(desk.engine.purged) == 1


@pytest.mark.parametrize("deleted", [False, True])
async def test_a_sibling_is_disposed_before_the_lane_is_left_and_as_its_session_is(deleted: bool) -> None:
    desk = Desk()
    lease = desk.registry.lease(desk.query("a"))
    sibling = lease.session.sibling()
    async with aclosing(sibling.generate((1, 2, 3))) as events:
        async for _ in events:
            pass
    if deleted:
        assert desk.registry.drop("a", tenant="ann")
    desk.registry.discard(lease, sibling)
    assert desk.registry.pending_disposals == 1
    await desk.registry.flush_before_leave(lease)
    assert sibling.disposed
    assert not lease.session.disposed
    assert len(desk.engine.purged) == deleted


async def test_a_delete_during_an_interrupted_turn_disposes_too() -> None:
    desk = Desk()
    await desk.turn(desk.query("a"))
    lease = desk.registry.lease(desk.query("b", previous="a"))
    assert desk.registry.drop("a", tenant="ann")
    assert desk.registry.peek("a", tenant="ann", domain=b"") is None
    assert not await desk.registry.give_back(lease)
    await desk.registry.flush_before_leave(lease)
    assert lease.session.disposed


async def test_dropping_an_absent_id_is_a_no_op() -> None:
    desk = Desk()
    assert not desk.registry.drop("a", tenant="ann")
    await desk.turn(desk.query("a"))
    assert len(desk.registry) == 1


# interrupted turns


async def interrupted(desk: Desk, query_id: str, previous: str | None) -> bool:
    lease = desk.registry.lease(desk.query(query_id, previous=previous))
    events = lease.session.generate((1, 2, 3, 4, 5, 6, 7))
    await anext(events)
    await events.aclose()
    kept = await desk.registry.give_back(lease)
    await desk.registry.flush_before_leave(lease)
    return kept


@BOTH
async def test_an_interrupted_turn_followed_by_a_warm_one(capacity: int) -> None:
    desk = Desk(capacity=capacity)
    first, _ = await desk.turn(desk.query("a", history=(user("x"),)))
    desk.clock.advance(1000)
    assert await interrupted(desk, "b", "a")
    assert first.session.owner is not None
    assert desk.engine.cells[first.session.owner] == 4
    assert first.session.history == (user("x"), assistant("ok"))
    lease = desk.registry.lease(desk.query("c", previous="a"))
    assert lease.hit
    assert await desk.registry.give_back(lease)
    desk.clock.advance(801)
    assert desk.registry.lease(desk.query("d", previous="a")).reason is MissReason.EXPIRED, "its old expiry"


@pytest.mark.parametrize("how", ["refuses", "fails"])
async def test_an_interrupted_turn_the_engine_cannot_undo_is_disposed(how: str) -> None:
    desk = Desk()
    first, _ = await desk.turn(desk.query("a"))
    desk.engine.truncates = how != "refuses"
    desk.engine.failing = {"truncate"} if how == "fails" else set()
    assert not await interrupted(desk, "b", "a")
    assert first.session.disposed
    assert desk.registry.lease(desk.query(previous="a")).reason is MissReason.EVICTED


async def test_an_interrupted_first_turn_has_no_old_id_and_is_disposed() -> None:
    desk = Desk()
    assert not await interrupted(desk, "a", None)
    assert (len(desk.registry), desk.registry.leased, desk.engine.cells) == (0, 0, {})


# the worker


@BOTH
@pytest.mark.parametrize("told", [True, False])
async def test_when_a_worker_dies_its_entries_are_discharged_at_once(capacity: int, told: bool) -> None:
    desk = Desk(capacity=capacity)
    await desk.turn(desk.query("a"))
    dead = desk.engine.restart()
    if told:
        desk.registry.worker_died(dead)
        assert len(desk.registry) == 0
    lease = desk.registry.lease(desk.query(previous="a"))
    assert lease.reason is MissReason.ENGINE_RESTARTED
    assert desk.registry.pending_disposals == 0
    assert all(op != "release" for op, _ in desk.engine.log)


async def test_worker_death_after_commit_disposes_locally_at_adopt() -> None:
    desk = Desk()
    lease = desk.registry.lease(desk.query("a"))
    await desk.run(lease)
    desk.registry.worker_died(desk.engine.restart())
    assert not desk.registry.adopt(lease).warm
    assert lease.session.disposed
    assert desk.registry.pending_disposals == 0
    assert desk.registry.lease(desk.query(previous="a")).reason is MissReason.ENGINE_RESTARTED


async def test_worker_death_during_a_turn_disposes_when_it_is_given_back() -> None:
    desk = Desk()
    await desk.turn(desk.query("a"))
    lease = desk.registry.lease(desk.query("b", previous="a"))
    desk.registry.worker_died(desk.engine.restart())
    assert not await desk.registry.give_back(lease)
    assert lease.session.disposed
    assert desk.registry.lease(desk.query(previous="a")).reason is MissReason.ENGINE_RESTARTED
