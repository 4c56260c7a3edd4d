"""`warmlane bench`: from its flags to servers, a run and a report."""

from __future__ import annotations

import asyncio
import importlib.util
import random
import shlex
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from warmlane import __version__
from warmlane.cli.models import resolve_model
from warmlane.config import Settings, available_cores, load_settings
from warmlane.errors import BenchError, ConfigError

if TYPE_CHECKING:
    from warmlane.bench.client import BenchClient
    from warmlane.bench.report import Report
    from warmlane.bench.run import Plan
    from warmlane.bench.servers import Launcher
    from warmlane.bench.workload import Workload

PACING_FLAG = "--max-inter-token-ms"
EXIT_FAILED = 1
EXIT_TERMINATED = 128 + signal.SIGTERM
EXIT_MISSED = 3

SETTLE_S = 2.0
"""Between the samples of two servers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Flags:
    """The command line, as given."""

    workloads: tuple[str, ...]
    base: str | None
    peer: str | None
    start: bool
    peer_bin: Path | None
    serve_args: str
    peer_args: str
    model: str | None
    peer_model: str | None
    n_pairs: int
    seed: int
    json: Path | None
    plot: Path | None
    key: str | None

    def check(self) -> None:
        """Raises `ConfigError` for flags that do not go together."""
        if self.start and (self.base or self.peer):
            raise ConfigError("--start starts the servers itself; give --base and --peer without it.")
        if not self.start and not self.base:
            raise ConfigError("Give --base URL for a running server, or --start to have one started.")
        if not self.start and (self.peer_bin or self.serve_args or self.peer_args):
            raise ConfigError("--peer-bin, --serve-args and --peer-args need --start.")
        if self.peer_bin is not None and not self.peer_bin.is_file():
            raise ConfigError(f"--peer-bin {self.peer_bin} is not a file. Build it with make peer.")


def bench(
    workloads: Annotated[list[str] | None, typer.Argument(help="Which to run; by default all that can be.")] = None,
    base: Annotated[str | None, typer.Option(help="The server to measure, such as http://127.0.0.1:8080.")] = None,
    peer: Annotated[str | None, typer.Option(help="The server to compare it with.")] = None,
    start: Annotated[bool, typer.Option("--start", help="Start the servers here, and stop them at the end.")] = False,
    peer_bin: Annotated[Path | None, typer.Option(help="With --start: the llama-server to compare with.")] = None,
    serve_args: Annotated[str, typer.Option(help="With --start: more flags for warmlane serve, in one word.")] = "",
    peer_args: Annotated[str, typer.Option(help="With --start: more flags for llama-server, in one word.")] = "",
    model: Annotated[str | None, typer.Option(help="The model's name; by default the first one listed.")] = None,
    peer_model: Annotated[str | None, typer.Option(help="The model's name at the peer.")] = None,
    pairs: Annotated[int, typer.Option(min=1, help="How often each workload runs on each server.")] = 5,
    seed: Annotated[int | None, typer.Option(help="Of the prompts; by default a new one, which is printed.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write the report to this file.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the ratios into this file.")] = None,
    key: Annotated[str | None, typer.Option(help="The API key of the server to measure.")] = None,
) -> int:
    """Measure a server, and compare it with a peer by turns in one run.

    Exits with 1 if something could not be measured, else with 3 if a bound was missed.
    """
    flags = _Flags(
        workloads=tuple(workloads or ()),
        base=base,
        peer=peer,
        start=start,
        peer_bin=peer_bin,
        serve_args=serve_args,
        peer_args=peer_args,
        model=model,
        peer_model=peer_model,
        n_pairs=pairs,
        seed=random.SystemRandom().randrange(10**6) if seed is None else seed,
        json=json,
        plot=plot,
        key=key,
    )
    flags.check()
    _check_installed(plots=plot is not None)
    settings = load_settings({"model": model} if model else {}) if start else None
    try:
        report = asyncio.run(_measure(flags, settings))
        _write(report, flags)
    except asyncio.CancelledError:
        return EXIT_TERMINATED
    except BenchError as error:
        typer.echo(f"warmlane: {error.message}", err=True)
        return EXIT_FAILED
    if report.failed:
        return EXIT_FAILED
    return EXIT_MISSED if report.missed else 0


def _check_installed(*, plots: bool) -> None:
    for package in ("httpx", "matplotlib") if plots else ("httpx",):
        if importlib.util.find_spec(package) is None:
            raise ConfigError(f"{package} is not installed. Run pip install 'warmlane[bench]'.")


async def _measure(flags: _Flags, settings: Settings | None) -> Report:
    from warmlane.bench.report import make_report
    from warmlane.bench.run import run

    _cancel_on_sigterm()
    async with _planned(flags, settings) as plan:
        typer.echo(f"seed {plan.seed}, {plan.n_pairs} pairs a workload", err=True)
        outcomes = await run(plan, lambda line: typer.echo(line, err=True))
        return make_report(plan, outcomes, version=__version__, n_cores=available_cores())


def _cancel_on_sigterm() -> None:
    """So that servers that were started are stopped then, too; SIGINT does the same already."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)


def _write(report: Report, flags: _Flags) -> None:
    from warmlane.bench.report import table

    for line in table(report):
        typer.echo(line)
    if flags.json is not None:
        try:
            flags.json.write_bytes(report.to_json())
        except OSError as error:
            raise BenchError(f"The report cannot be written to {flags.json}: {error.strerror}.") from None
    if flags.plot is not None:
        from warmlane.bench.plot import save_plot

        save_plot(report, flags.plot)


@asynccontextmanager
async def _planned(flags: _Flags, settings: Settings | None) -> AsyncIterator[Plan]:
    from warmlane.bench.client import BenchClient, Target
    from warmlane.bench.run import Plan
    from warmlane.bench.workload import Side

    chosen = _choose(flags, settings)
    async with AsyncExitStack() as opened:

        async def connect(
            base: str | None, launcher: Launcher | None, model: str | None, key: str | None
        ) -> BenchClient:
            url = (await opened.enter_async_context(launcher.start())).base_url if launcher else base
            assert url is not None
            target = Target(url, model or "", key)
            return await opened.enter_async_context(BenchClient.connect(target))

        ours_launcher, peer_launcher = _launchers(flags, settings)
        ours = await connect(flags.base, ours_launcher, None if flags.start else flags.model, flags.key)
        peer = None
        if flags.peer or peer_launcher:
            peer = await connect(flags.peer, peer_launcher, flags.peer_model, None)
        yield Plan(
            workloads=chosen,
            ours=Side(name="ours", client=ours, other=peer, launcher=ours_launcher, reference=peer),
            peer=Side(name="peer", client=peer, other=ours, launcher=peer_launcher, reference=peer) if peer else None,
            n_pairs=flags.n_pairs,
            seed=flags.seed,
            settle_s=SETTLE_S if peer else 0.0,
        )


def _launchers(flags: _Flags, settings: Settings | None) -> tuple[Launcher | None, Launcher | None]:
    from warmlane.bench.servers import llama_server_launcher, warmlane_launcher

    if settings is None:
        return None, None
    source = resolve_model(settings)
    model_flags = ("--model", settings.model) if source.path else ()
    ours = warmlane_launcher(*model_flags, *shlex.split(flags.serve_args))
    if flags.peer_bin is None:
        return ours, None
    if source.path is None:
        raise ConfigError("--peer-bin needs a model file; the simulated engine has none.")
    extra = tuple(shlex.split(flags.peer_args))
    return ours, llama_server_launcher(flags.peer_bin, source.path, n_threads=settings.n_threads, flags=extra)


def _choose(flags: _Flags, settings: Settings | None) -> Sequence[Workload]:
    """The workloads asked for, in the order of the catalogue. Raises `ConfigError` for unknown or impossible ones."""
    from warmlane.bench.catalogue import catalogue
    from warmlane.engine.config import EngineConfig

    engine, paced = EngineConfig(), PACING_FLAG in flags.serve_args
    if settings is not None:
        from warmlane.cli.compose import engine_config

        engine = engine_config(settings, resolve_model(settings))
        paced = paced or settings.max_inter_token_ms is not None
    known = {workload.name: workload for workload in catalogue(engine, paced=paced)}
    for name in flags.workloads:
        if name not in known:
            raise ConfigError(f"There is no workload {name!r}. Known: {', '.join(known)}.")
        if known[name].needs_launcher and not flags.start:
            raise ConfigError(f"The workload {name} starts servers of its own; give --start instead of --base.")
    wanted = flags.workloads or tuple(name for name in known if flags.start or not known[name].needs_launcher)
    return [workload for name, workload in known.items() if name in wanted]
