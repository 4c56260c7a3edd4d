"""The order of a run, and what a failing side does to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from support.bench import ScriptedWorkload, chat_stream, client_of
from warmlane.bench.machine import StolenTime
from warmlane.bench.run import Outcome, Plan, run
from warmlane.bench.workload import Side
from warmlane.errors import BenchError


async def outcomes_of(
    *workloads: ScriptedWorkload,
    peer: bool = True,
    n_pairs: int = 3,
    stolen: Callable[[], StolenTime] = StolenTime,
) -> list[Outcome]:
    async with client_of(lambda _: chat_stream("x")) as client:
        plan = Plan(
            workloads=workloads,
            ours=Side(name="ours", client=client),
            peer=Side(name="peer", client=client) if peer else None,
            n_pairs=n_pairs,
            seed=7,
            stolen=stolen,
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


async def test_a_sample_holds_what_was_stolen_while_it_was_taken(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    began = 0

    def begin() -> StolenTime:
        nonlocal began
        began += 1
        stat.write_text(f"cpu  {100 * began} 0 0 0 0 0 0 {100 * began}\n")
        stolen = StolenTime(stat)
        stat.write_text(f"cpu  {100 * began + 10 - began} 0 0 0 0 0 0 {100 * began + began}\n")
        return stolen

    (outcome,) = await outcomes_of(ScriptedWorkload(both(1.0, 2.0)), n_pairs=2, stolen=begin)

    assert [sample.stolen for sample in outcome.ours] == [0.1, 0.3]
    assert [sample.stolen for sample in outcome.peer] == [0.2, 0.4]


async def test_a_workload_of_ours_alone_leaves_the_peer_out() -> None:
    workload = ScriptedWorkload({"ours": 1.0}, ours_only=True)

    (outcome,) = await outcomes_of(workload)

    assert [name for name, _ in workload.runs] == ["ours"] * 3
    assert outcome.peer == ()
