"""Puts the parts of a server together, in the order they depend on each other, and takes them apart again."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

from starlette.types import ASGIApp

from warmlane import config
from warmlane.api.app import create_app
from warmlane.api.auth import ApiKey, KeyRing
from warmlane.api.settings import LOOPBACK_HOSTS, EdgeSettings
from warmlane.cli.engine_readings import EngineReadings
from warmlane.cli.housekeeping import Housekeeper
from warmlane.cli.keys import is_loopback, load_api_keys
from warmlane.cli.models import (
    ModelSource,
    read_chat_template,
    resolve_aliases,
    resolve_model,
    resolve_on_demand,
)
from warmlane.clock import SystemClock
from warmlane.config import Settings
from warmlane.engine.client import WorkerEngine
from warmlane.engine.config import EngineConfig, EngineKind
from warmlane.engine.tiers.erasing import erase_domains
from warmlane.errors import ConfigError, Unavailable
from warmlane.host import Aliases, Binding, Loader, ModelGate, ModelHost
from warmlane.observe import ModelNumbers
from warmlane.sessions import Lane, Purpose, Secrets, SessionDefaults, SessionRegistry, effective_capacity
from warmlane.store import key_file_of, open_store
from warmlane.turns.conversations import StoredConversations
from warmlane.turns.parts import SpineParts
from warmlane.turns.runs import StoredRuns
from warmlane.turns.spine import Spine

log = logging.getLogger(__name__)


class Server:
    """A composed server; implements `cli.parts.ServerParts`."""

    def __init__(
        self, app: ASGIApp, host: ModelHost, closing: AsyncExitStack, *, settings: Settings, keys: KeyRing
    ) -> None:
        self.app = app
        self._host = host
        self._closing = closing
        self._settings = settings
        self._keys = keys

    def reload(self) -> None:
        try:
            entries = load_api_keys(self._settings)
        except ConfigError as error:
            log.error("the API keys stay as they were: %s", error)
            return
        self._keys.replace(_ring(entries, self._settings.admin_key))
        for binding in self._host.bindings():
            binding.lane.tenants = _n_tenants(entries)
        log.info("%d API keys were read", len(self._keys))

    def begin_drain(self) -> None:
        self._host.begin_drain()

    async def drained(self, grace_s: float) -> None:
        await self._host.drained(grace_s)

    async def close(self) -> None:
        await self._closing.aclose()


async def build(settings: Settings) -> Server:
    """Open the store, load the model, wire the edge to them. Raises `ConfigError`; what was opened is then closed."""
    async with AsyncExitStack() as opened:
        parts = await _spine_parts(settings, resolve_model(settings), opened)
        keys = KeyRing(_ring(load_api_keys(settings), settings.admin_key))
        spine, engines = Spine(parts), EngineReadings(parts.host)
        parts.metrics.watch_engines(engines.readings)
        runs = StoredRuns(parts.store, unix_now=parts.unix_now)
        await _keep_house(settings, parts, spine, runs, opened)
        app = create_app(
            turns=spine,
            archive=spine,
            conversations=StoredConversations(parts.store, unix_now=parts.unix_now),
            runs=runs,
            host=parts.host,
            settings=EdgeSettings(
                keys=keys,
                drain_timeout_s=settings.drain_timeout_s,
                canonicalize=settings.canonicalize,
                allowed_hosts=LOOPBACK_HOSTS | {settings.host} if is_loopback(settings.host) else None,
            ),
            clock=parts.clock,
            signing_key=parts.secrets.derive(Purpose.SIGNATURE),
            registry=parts.metrics.registry,
            before_scrape=engines.refresh,
        )
        return Server(app, parts.host, opened.pop_all(), settings=settings, keys=keys)
    raise AssertionError("unreachable: the stack swallows nothing")


async def _keep_house(
    settings: Settings, parts: SpineParts, spine: Spine, runs: StoredRuns, opened: AsyncExitStack
) -> None:
    keeper = Housekeeper(parts.host, parts.store, spine, runs, max_bytes=int(settings.store_max_size) or None)
    # Once before the first request, so that nobody sees a run in progress that a killed server has left.
    await keeper.once()
    for work in (keeper.run(), keeper.listen()):
        task = asyncio.create_task(work, name="housekeeping")
        opened.callback(task.cancel)


async def _spine_parts(settings: Settings, model: ModelSource, opened: AsyncExitStack) -> SpineParts:
    chat_template = read_chat_template(settings)
    store = await open_store(settings.store, timeout_s=settings.store_timeout_s)
    opened.push_async_callback(store.close)
    secrets = make_secrets(settings)
    sources = (model, *resolve_on_demand(settings))
    host = ModelHost(load_timeout_s=settings.load_timeout_s, aliases=Aliases(resolve_aliases(settings)))
    opened.push_async_callback(host.close)
    parts = SpineParts(
        host=host,
        store=store,
        secrets=secrets,
        clock=SystemClock(),
        chat_template=chat_template,
        output_format=settings.format,
        queue_timeout_s=settings.queue_timeout_s,
        drain_timeout_s=settings.drain_timeout_s,
        turn_timeout_s=settings.turn_timeout_s,
        log_text=settings.log_text,
        erase_files=disk_eraser(settings, frozenset(source.name for source in sources)),
    )
    for source in sources:
        cold = _lane(settings, source.name, capacity=1 if settings.flat else settings.capacity)
        host.add(source.name, loader=_loader(settings, source, parts), cold=cold, created=int(time.time()))
    try:
        await host.load(model.name)
    except Unavailable as error:
        raise ConfigError(f"The model {model.name} could not be loaded: {error.message}") from error
    parts.metrics.watch(lambda: _numbers(host.bindings()))
    return parts


def make_secrets(settings: Settings) -> Secrets:
    """The configured secret; else that of the key file beside the store, or in the disk cache where the store is in
    memory, so that a restart knows its files again; else one that ends with the process."""
    key_file = key_file_of(settings.store)
    if key_file is None and settings.disk_cache is not None:
        key_file = settings.disk_cache.expanduser() / "warmlane.key"
    configured = None if settings.secret is None else bytes.fromhex(settings.secret)
    return Secrets.open(configured=configured, key_file=key_file)


def _loader(settings: Settings, model: ModelSource, parts: SpineParts) -> Loader:
    async def load(gate: ModelGate) -> Binding:
        engine = await WorkerEngine.start(engine_config(settings, model), load_timeout_s=settings.load_timeout_s)
        try:
            binding = _bind(settings, model.name, engine, gate, parts)
            engine.add_death_listener(lambda _: parts.suspects(binding).worker_died(killed=engine.was_killed))
            parts.prompter(binding)  # a model without a usable chat template is refused now, not at its first request
        except BaseException:
            await engine.close()
            raise
        return binding

    return load


def engine_config(settings: Settings, model: ModelSource) -> EngineConfig:
    """How the settings want a model's engine to be set up."""
    return EngineConfig(
        kind=EngineKind(settings.engine.value),
        model_path=None if model.path is None else str(model.path),
        model_name=model.name,
        n_ctx=settings.ctx,
        capacity=settings.capacity,
        flat=settings.flat,
        n_threads=settings.n_threads,
        flash_attention=settings.flash_attention,
        hot_tokens=settings.hot_tokens,
        ram_cache_bytes=int(settings.ram_cache) if "ram_cache" in settings.model_fields_set else None,
        disk_cache_dir=_disk_cache_dir(settings, model.name),
        disk_cache_bytes=int(settings.disk_cache_size),
        max_inter_token_ms=settings.max_inter_token_ms,
        simulated_hash=settings.simulated_hash,
    )


def _disk_cache_dir(settings: Settings, model: str) -> str | None:
    """A folder a model: each has one worker that owns it."""
    return None if settings.disk_cache is None else str(settings.disk_cache.expanduser() / model)


def disk_eraser(
    settings: Settings, models: frozenset[str]
) -> Callable[[frozenset[bytes], frozenset[str]], Awaitable[None]]:
    """What removes the files of domains in the disk cache of these models, but for some of them."""

    async def erase(domains: frozenset[bytes], but_of: frozenset[str]) -> None:
        for model in models - but_of:
            directory = _disk_cache_dir(settings, model)
            if directory is not None:
                await asyncio.to_thread(erase_domains, Path(directory), domains)

    return erase


def _bind(settings: Settings, name: str, engine: WorkerEngine, gate: ModelGate, parts: SpineParts) -> Binding:
    info = engine.info
    registry = SessionRegistry(
        engine,
        secrets=parts.secrets,
        clock=parts.clock,
        defaults=SessionDefaults(sampling=info.sampling, max_output_tokens=info.n_ctx),
        warm_capacity=settings.warm_capacity,
        ttl_s=settings.session_ttl_s,
        key_reuse=settings.key_reuse,
    )
    engine.add_death_listener(registry.worker_died)
    lane = _lane(settings, name, capacity=effective_capacity(engine))
    return Binding(name=name, engine=engine, lane=lane, registry=registry, created=int(time.time()), gate=gate)


def _lane(settings: Settings, name: str, *, capacity: int) -> Lane:
    return Lane(
        capacity=capacity,
        max_waiting=settings.max_waiting,
        clock=SystemClock(),
        queue_timeout_s=settings.queue_timeout_s,
        tenants=_n_tenants(load_api_keys(settings)),
        name=name,
    )


def _ring(keys: Iterable[config.ApiKey], admin_key: str | None) -> list[ApiKey]:
    """The tenants' keys, and the admin's, whose own turns belong to the tenant without a name."""
    ring = [ApiKey(key=k.key, tenant=k.tenant) for k in keys]
    return ring if admin_key is None else [*ring, ApiKey(key=admin_key, tenant="", admin=True)]


def _n_tenants(keys: Iterable[config.ApiKey]) -> int:
    return max(1, len({key.tenant for key in keys}))


def _numbers(bindings: Iterable[Binding]) -> Iterator[ModelNumbers]:
    for binding in bindings:
        lane, registry, engine = binding.lane, binding.registry, binding.engine
        yield ModelNumbers(
            model=binding.name,
            ready=engine.ready,
            generation=engine.generation,
            # A generation begins with the death of the one before it; its worker comes later.
            restarts=max(0, engine.generation - 1 - (not engine.ready)),
            active=lane.active,
            waiting=lane.waiting,
            permits=lane.permits,
            capacity=lane.capacity,
            warm=len(registry),
            hits=registry.hits,
            misses={reason.value: n for reason, n in registry.misses.items()},
            evictions=registry.evictions,
            disposals_owed=registry.owed_disposals,
        )
