"""The order of a run, and what a failing side does to it."""

from __future__ import annotations

from collections.abc import Mapping

from support.bench import ScriptedWorkload, chat_stream, client_of
from warmlane.bench.run import Outcome, Plan, run
from warmlane.bench.workload import Side
from warmlane.errors import BenchError


async def outcomes_of(*workloads: ScriptedWorkload, peer: bool = True, n_pairs: int = 3) -> list[Outcome]:
    async with client_of(lambda _: chat_stream("x")) as client:
        plan = Plan(
            workloads=workloads,
            ours=Side(name="ours", client=client),
            peer=Side(name="peer", client=client) if peer else None,
            n_pairs=n_pairs,
            seed=7,
        )
        return await run(plan, lambda line: None)


def both(ours: float | BenchError, peer: float | BenchError) -> Mapping[str, float | BenchError]:
    return {"ours": ours, "peer": peer}


async def test_sides_take_turns_with_the_same_prompts_and_no_two_pairs_share_one() -> None:
    workload = ScriptedWorkload(both(1.0, 2.0))

    (outcome,) = await outcomes_of(workload)

    assert [name for name, _ in workload.runs] == ["ours", "peer"] * 3
    drawn = [value for _, value in workload.runs]
    assert drawn[0::2] == drawn[1::2]
    assert len(set(drawn)) == 3
    assert (len(outcome.ours), len(outcome.peer), outcome.failure) == (3, 3, None)


async def test_the_seed_repeats_a_run_and_workloads_differ() -> None:
    first, again = ScriptedWorkload(both(1.0, 2.0)), ScriptedWorkload(both(1.0, 2.0))
    other = ScriptedWorkload(both(1.0, 2.0), name="other")

    await outcomes_of(first)
    await outcomes_of(again, other)

    assert first.runs == again.runs
    assert other.runs != again.runs


async def test_a_failure_ends_its_side_of_its_workload_alone() -> None:
    broken = ScriptedWorkload(both(BenchError("it broke"), 2.0))
    peer_broken = ScriptedWorkload(both(1.0, BenchError("it refused")))
    sound = ScriptedWorkload(both(1.0, 2.0))

    first, second, third = await outcomes_of(broken, peer_broken, sound)

    assert (first.ours, len(first.peer), first.failure) == ((), 3, "it broke")
    assert (len(second.ours), second.peer, second.peer_failure) == (3, (), "it refused")
    assert (len(third.ours), len(third.peer)) == (3, 3)


async def test_a_workload_of_ours_alone_leaves_the_peer_out() -> None:
    workload = ScriptedWorkload({"ours": 1.0}, ours_only=True)

    (outcome,) = await outcomes_of(workload)

    assert [name for name, _ in workload.runs] == ["ours"] * 3
    assert outcome.peer == ()
