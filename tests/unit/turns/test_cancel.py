"""The cancel flag aborts what is heeded and nothing else."""

from __future__ import annotations

import asyncio

import pytest

from warmlane.clock import SystemClock
from warmlane.turns.cancel import CancelFlag, TurnCancelled


async def test_a_set_flag_aborts_the_open_stretch() -> None:
    flag = CancelFlag(SystemClock())
    asyncio.get_running_loop().call_soon(flag.set, TurnCancelled("gone"))
    with pytest.raises(TurnCancelled, match="gone"):
        async with flag.heeded():
            await asyncio.Event().wait()


async def test_a_flag_set_between_stretches_aborts_the_next_before_it_starts() -> None:
    flag = CancelFlag(SystemClock())
    flag.set(TurnCancelled("first"))
    flag.set(TurnCancelled("second"))
    ran = False
    with pytest.raises(TurnCancelled, match="first"):
        async with flag.heeded():
            ran = True
    assert not ran


async def test_work_outside_a_stretch_is_never_cancelled() -> None:
    flag = CancelFlag(SystemClock())
    async with flag.heeded():
        pass
    asyncio.get_running_loop().call_soon(flag.set, TurnCancelled("late"))
    for _ in range(5):
        await asyncio.sleep(0)
    assert flag.error is not None


async def test_cleanup_inside_the_stretch_runs_and_the_error_is_the_flags() -> None:
    flag = CancelFlag(SystemClock())
    cleaned: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append("yes")

    asyncio.get_running_loop().call_soon(flag.set, TurnCancelled("gone"))
    with pytest.raises(TurnCancelled):
        async with flag.heeded():
            await work()
    assert cleaned == ["yes"]


async def test_the_bodys_own_error_passes() -> None:
    flag = CancelFlag(SystemClock())
    with pytest.raises(ValueError, match="mine"):
        async with flag.heeded():
            raise ValueError("mine")
    with pytest.raises(TimeoutError, match="inner"):
        async with flag.heeded():
            raise TimeoutError("inner")
