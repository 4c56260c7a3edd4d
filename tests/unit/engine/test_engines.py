"""Both implementations of `protocol.Engine`, one in this process and one behind a worker, on the simulated backend."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from unit.engine.harness import DOMAIN, GREEDY, chat
from warmlane.engine.client import Backoff, WorkerEngine
from warmlane.engine.config import EngineConfig, EngineKind
from warmlane.engine.local import LocalEngine
from warmlane.engine.protocol import Chunk, Ended, EngineEvent, GenerateRequest, OwnerId, Placed, TextPiece
from warmlane.errors import ConfigError, ContextOverflow, EngineDied, EngineFault, InvalidRequest

AnyEngine = LocalEngine | WorkerEngine
SIMULATED = EngineConfig(kind=EngineKind.SIMULATED, model_name="sim", n_ctx=4096)
START: dict[str, Callable[[EngineConfig], Awaitable[AnyEngine]]] = {
    "local": LocalEngine.start,
    "worker": WorkerEngine.start,
}


@asynccontextmanager
async def running(kind: str, config: EngineConfig = SIMULATED) -> AsyncIterator[AnyEngine]:
    engine = await START[kind](config)
    try:
        yield engine
    finally:
        await engine.close()


@pytest.fixture(params=["local", "worker"])
async def engine(request: pytest.FixtureRequest) -> AsyncIterator[AnyEngine]:
    async with running(request.param) as engine:
        yield engine


async def request_for(
    engine: AnyEngine, message: str, *, owner: OwnerId | None = None, grammar: str | None = None
) -> GenerateRequest:
    (prompt,) = await engine.tokenize([TextPiece(chat(("user", message)), special=True, bos=True)])
    return GenerateRequest(
        owner=owner or engine.new_owner(),
        domain=DOMAIN,
        prompt=tuple(prompt),
        sampling=GREEDY,
        max_tokens=4000,
        grammar=grammar,
    )


async def ask(
    engine: AnyEngine, message: str, *, owner: OwnerId | None = None, grammar: str | None = None
) -> list[EngineEvent]:
    request = await request_for(engine, message, owner=owner, grammar=grammar)
    return [event async for event in engine.generate(request)]


def text(events: list[EngineEvent]) -> str:
    return "".join(e.text for e in events if isinstance(e, Chunk))


async def test_it_describes_itself(engine: AnyEngine) -> None:
    info = engine.info
    assert (info.model, info.n_ctx, info.capacity, info.block_paged) == ("sim", 4096, 8, True)
    assert (engine.capacity, engine.block_paged, engine.generation, engine.ready) == (8, True, info.generation, True)
    assert info.chat_template is not None
    assert "<|im_end|>" in info.special_tokens


async def test_it_answers_and_the_next_turn_is_warm(engine: AnyEngine) -> None:
    owner = engine.new_owner()
    events = await ask(engine, "hi 🌧", owner=owner)
    assert text(events) == "echo: hi 🌧"
    assert isinstance(events[0], Placed)
    assert isinstance(events[-1], Ended)
    again = await ask(engine, "hi 🌧", owner=owner)
    assert isinstance(again[0], Placed)
    assert again[0].cached_tokens == again[0].prompt_tokens - 1


async def test_turns_run_at_once(engine: AnyEngine) -> None:
    answers = await asyncio.gather(*(ask(engine, f"EMIT:{n}") for n in range(20)))
    assert [text(a) for a in answers] == [str(n) for n in range(20)]
    assert len({engine.new_owner() for _ in range(10)}) == 10


async def test_a_turn_left_early_is_cancelled(engine: AnyEngine) -> None:
    async with aclosing(engine.generate(await request_for(engine, "SLEEP:600"))) as events:
        assert isinstance(await anext(events), Placed)
        assert (await engine.stats()).prefilling_turns == 1
    stats = await engine.stats()
    assert stats.prefilling_turns + stats.decoding_turns + stats.waiting_turns == 0


async def test_a_cancelled_task_cancels_its_turn(engine: AnyEngine) -> None:
    placed = asyncio.Event()

    async def consume() -> None:
        async for _ in engine.generate(await request_for(engine, "SLEEP:600")):
            placed.set()

    task = asyncio.create_task(consume())
    await placed.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert (await engine.stats()).prefilling_turns == 0


async def test_a_fault_is_this_turns_alone(engine: AnyEngine) -> None:
    results = await asyncio.gather(ask(engine, "FAIL:2"), ask(engine, "hi"), return_exceptions=True)
    assert isinstance(results[0], EngineFault)
    assert not isinstance(results[1], BaseException)
    assert text(results[1]) == "echo: hi"


async def test_a_reply_is_held_to_its_grammar(engine: AnyEngine) -> None:
    grammar = 'start: %json {"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}'
    held, free = await asyncio.gather(ask(engine, 'EMIT:{ "a": 12} and more', grammar=grammar), ask(engine, "hi"))
    assert text(held) == '{ "a": 12}'
    assert text(free) == "echo: hi"


async def test_a_bad_grammar_is_the_clients_fault(engine: AnyEngine) -> None:
    with pytest.raises(InvalidRequest, match="lexer error"):
        await ask(engine, "hi", grammar='start: "x')
    assert (await engine.stats()).waiting_turns == 0


async def test_a_turn_left_while_its_grammar_is_compiled_is_cancelled(engine: AnyEngine) -> None:
    request = await request_for(engine, "SLEEP:600", grammar="start: " + " ".join(f"/[a-z{i}]+/" for i in range(300)))
    task = asyncio.ensure_future(anext(engine.generate(request)))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert text(await ask(engine, "EMIT:b", grammar='start: "b"')) == "b"
    stats = await engine.stats()
    assert stats.prefilling_turns + stats.decoding_turns + stats.waiting_turns == 0


async def test_a_prompt_too_long_says_how_long(engine: AnyEngine) -> None:
    with pytest.raises(ContextOverflow, match="4096"):
        await ask(engine, "x" * 5000)


async def test_release_truncate_and_reset(engine: AnyEngine) -> None:
    owner = engine.new_owner()
    await ask(engine, "hi", owner=owner)
    assert await engine.truncate(owner, 5)
    assert (await engine.stats()).cells_owned == 5
    await engine.release(owner, purge=True)
    await engine.release(owner)
    await engine.release(engine.new_owner())
    await engine.reset()
    stats = await engine.stats()
    assert stats.cells_owned + stats.cells_idle + stats.sequences_used == 0


async def test_close_ends_running_turns_and_may_be_repeated(engine: AnyEngine) -> None:
    events = engine.generate(await request_for(engine, "SLEEP:600"))
    assert isinstance(await anext(events), Placed)
    await engine.close()
    with pytest.raises(EngineDied):
        await anext(events)
    assert not engine.ready
    with pytest.raises(EngineDied):
        await ask(engine, "hi")
    await engine.close()


@pytest.mark.parametrize("kind", ["local", "worker"])
async def test_flat(kind: str) -> None:
    config = EngineConfig(kind=EngineKind.SIMULATED, flat=True, capacity=8, chat_template="mine")
    async with running(kind, config) as engine:
        assert (engine.capacity, engine.block_paged, engine.info.chat_template) == (1, False, "mine")
        await ask(engine, "hi")
        await engine.reset()
        assert (await engine.stats()).sequences_used == 0


@pytest.mark.parametrize("kind", ["local", "worker"])
async def test_a_model_file_that_cannot_be_used_is_a_config_error_of_one_line(kind: str, tmp_path: Path) -> None:
    junk = tmp_path / "junk.gguf"
    junk.write_bytes(b"GGUF" + bytes(range(256)) * 64)
    for path, says in ((None, "--model"), (str(tmp_path / "none.gguf"), "does not exist"), (str(junk), "damaged")):
        with pytest.raises(ConfigError, match=says) as caught:
            await START[kind](EngineConfig(model_path=path))
        assert "\n" not in caught.value.message


@pytest.mark.parametrize("kind", ["local", "worker"])
async def test_a_restarted_engine_is_warm_from_disk_and_one_at_a_time_has_the_directory(
    kind: str, tmp_path: Path
) -> None:
    config = msgspec.structs.replace(SIMULATED, disk_cache_dir=str(tmp_path / "kv"))
    long = "hi " * 100
    async with running(kind, config) as engine:
        assert text(await ask(engine, long)) == f"echo: {long}"
        with pytest.raises(ConfigError, match=r"in use by process \d+") as refused:
            await START[kind](config)
        assert "\n" not in refused.value.message
    async with running(kind, config) as engine:
        (first, *_) = events = await ask(engine, long)
        assert text(events) == f"echo: {long}"
        assert isinstance(first, Placed)
        assert first.disk_tokens == first.cached_tokens == first.prompt_tokens - 1
        assert (await engine.stats()).disk_segments == 1


@pytest.mark.timeout(30)
async def test_an_engine_that_is_asked_something_all_the_time_writes_what_rests(tmp_path: Path) -> None:
    config = msgspec.structs.replace(SIMULATED, disk_cache_dir=str(tmp_path / "kv"), disk_idle_s=0.0)
    async with running("local", config) as engine:
        await ask(engine, "hi " * 100)
        while not (await engine.stats()).disk_writes:
            pass


async def test_a_killed_worker_comes_back_to_its_directory(tmp_path: Path) -> None:
    deaths = Deaths()
    config = msgspec.structs.replace(SIMULATED, disk_cache_dir=str(tmp_path / "kv"), disk_idle_s=0.0)
    async with supervised(deaths, config) as engine:
        await ask(engine, "hi " * 100)
        while not list((tmp_path / "kv").glob("*.kv")):
            await asyncio.sleep(0.01)
        assert engine.worker_pid is not None
        os.kill(engine.worker_pid, signal.SIGKILL)
        while engine.generation == 1 or not engine.ready:
            await asyncio.sleep(0.01)
        (first, *_) = await ask(engine, "hi " * 100)
        assert isinstance(first, Placed)
        assert first.disk_tokens == first.prompt_tokens - 1


@pytest.mark.parametrize("kind", ["local", "worker"])
async def test_placements_say_where_a_prompt_left_what_is_cached(kind: str) -> None:
    async with running(kind) as engine:
        await ask(engine, "the quick brown fox")
        (first, *_) = await ask(engine, "the quick red fox")
        assert isinstance(first, Placed)
        assert first.divergence is not None
        assert first.divergence.cached.startswith("brown")
        assert first.divergence.prompt.startswith("red")


async def test_a_crash_in_this_process_ends_the_engine_for_good() -> None:
    async with running("local") as engine:
        with pytest.raises(EngineDied):
            await ask(engine, "CRASH:1 EMIT:abc")
        assert not engine.ready


class Deaths:
    """Collects dead generations, and lets a test wait out the back-off without waiting."""

    def __init__(self) -> None:
        self.generations: list[int] = []
        self.delays: list[float] = []

    def listen(self, generation: int) -> None:
        self.generations.append(generation)

    async def no_sleep(self, seconds: float) -> None:
        self.delays.append(seconds)


@asynccontextmanager
async def supervised(deaths: Deaths, config: EngineConfig = SIMULATED) -> AsyncIterator[WorkerEngine]:
    engine = await WorkerEngine.start(config, on_death=deaths.listen, sleep=deaths.no_sleep)
    try:
        yield engine
    finally:
        await engine.close()


@pytest.mark.parametrize("how", ["kill", "crash"])
async def test_a_dead_worker_ends_its_turns_and_is_replaced(how: str) -> None:
    deaths = Deaths()
    async with supervised(deaths) as engine:
        owner = engine.new_owner()
        assert text(await ask(engine, "hi", owner=owner)) == "echo: hi"
        events = engine.generate(await request_for(engine, "SLEEP:600" if how == "kill" else "SLOW:1\nCRASH:3"))
        assert isinstance(await anext(events), Placed)
        pid = engine.worker_pid
        if how == "kill":
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(EngineDied):
            [event async for event in events]
        assert not engine.ready
        assert (engine.generation, engine.was_killed) == (2, how == "kill")
        with pytest.raises(EngineDied):
            await engine.tokenize([])
        await engine.release(owner)
        await engine.wait_ready()
        assert deaths.generations == [1]
        assert engine.worker_pid != pid
        with pytest.raises(EngineDied):
            await ask(engine, "hi", owner=owner)
        assert engine.new_owner().generation == engine.info.generation == 2
        assert text(await ask(engine, "hi")) == "echo: hi"


async def test_a_worker_that_keeps_dying_is_restarted_ever_later() -> None:
    deaths = Deaths()
    async with supervised(deaths) as engine:
        for generation in (1, 2, 3):
            with pytest.raises(EngineDied):
                await ask(engine, "CRASH:0")
            await engine.wait_ready()
            assert deaths.generations[-1] == generation
        assert deaths.delays == [0.1, 0.2, 0.4]


def test_back_off_is_bounded() -> None:
    backoff = Backoff(first_s=0.1, longest_s=10.0)
    assert [backoff.delay_s(n) for n in (0, 1, 6, 7, 1000)] == [0.1, 0.2, 6.4, 10.0, 10.0]


async def test_a_terminal_interrupt_does_not_reach_the_worker() -> None:
    async with running("worker") as engine:
        assert isinstance(engine, WorkerEngine)
        assert engine.worker_pid is not None
        assert os.getpgid(engine.worker_pid) != os.getpgid(0)
        os.kill(engine.worker_pid, signal.SIGINT)
        assert text(await ask(engine, "hi")) == "echo: hi"


@pytest.mark.skipif(sys.platform != "linux", reason="waits by pidfd")
async def test_the_worker_goes_when_its_parent_does(tmp_path: Path) -> None:
    script = (
        "import asyncio, os\n"
        "from warmlane.engine.client import WorkerEngine\n"
        "from warmlane.engine.config import EngineConfig, EngineKind\n"
        "async def main():\n"
        "    engine = await WorkerEngine.start(EngineConfig(kind=EngineKind.SIMULATED))\n"
        "    print(engine.worker_pid, flush=True)\n"
        "    os._exit(0)\n"
        "asyncio.run(main())\n"
    )
    parent = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        script,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    out, _ = await parent.communicate()
    try:
        worker = os.pidfd_open(int(out))
    except ProcessLookupError:
        return
    readable, _, _ = await asyncio.to_thread(select.select, [worker], [], [], 10)
    os.close(worker)
    assert readable, "the worker still runs"


async def test_a_question_whose_asker_went_away_harms_nobody(engine: AnyEngine) -> None:
    asking = asyncio.create_task(engine.reset())
    await asyncio.sleep(0)
    asking.cancel()
    await asyncio.wait([asking])
    assert text(await ask(engine, "hi")) == "echo: hi"


async def test_what_rests_is_copied_ahead_though_nobody_asks_for_anything() -> None:
    async with running("local", msgspec.structs.replace(SIMULATED, hot_tokens=1000)) as engine:
        await ask(engine, "EMIT:" + "so it goes " * 10)
        # A question makes no step by itself.
        async with asyncio.timeout(20):
            while not (stats := await engine.stats()).ram_segments:
                pass
        assert stats.ram_segments == 1
        assert stats.cells_idle + stats.cells_owned > 100
