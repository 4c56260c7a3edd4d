"""The commands, and how their errors are told: one line on stderr, exit 2, no traceback."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ByteSize
from typer.models import OptionInfo

from warmlane import __version__
from warmlane.cli.announce import announce_loading, announce_ready
from warmlane.cli.bench import bench
from warmlane.cli.keys import load_api_keys
from warmlane.cli.logs import configure_logging
from warmlane.cli.models import resolve_aliases, resolve_model, resolve_on_demand
from warmlane.config import LogLevel, Settings, flag_of, load_settings
from warmlane.engine.config import EngineKind, FlashAttention
from warmlane.errors import ConfigError

app = typer.Typer(
    help="An LLM server for agents: a conversation's next turn costs only its new tokens.",
    add_completion=False,
    pretty_exceptions_enable=False,
    invoke_without_command=True,
    rich_markup_mode=None,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line (`sys.argv` by default) and return the exit code."""
    command = typer.main.get_command(app)
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        code = command.main(args=words, prog_name="warmlane", standalone_mode=False)
    except typer.TyperException as error:
        message = error.format_message().replace("Value error, ", "").rstrip(".")
        asked = "bench" if words[:1] == ["bench"] else "serve"
        return _complain(f"{message}. See warmlane {asked} --help.", error.exit_code)
    except ConfigError as error:
        return _complain(error.message, 2)
    except (typer.Abort, KeyboardInterrupt):
        return 130
    return code if isinstance(code, int) else 0


def _complain(message: str, exit_code: int) -> int:
    print("warmlane:", " ".join(message.split()), file=sys.stderr)
    return exit_code


_METAVARS = {"alias": "PATTERN=MODEL", "api_key": "TENANT=KEY", "on_demand": "MODEL"}


def _option(name: str) -> OptionInfo:
    """The option of a setting. Its value is None unless given, so that the environment and the file can speak."""
    setting = Settings.model_fields[name]
    default = setting.get_default(call_default_factory=True, validated_data={})
    if isinstance(default, ByteSize):
        default = default.human_readable()
    if isinstance(default, tuple):
        default = " ".join(default)
    shown = "" if default in (None, False, "") else f" [default: {default}]"
    flag = flag_of(name)
    declared = f"{flag}/--no-{flag[2:]}" if setting.annotation is bool else flag
    metavar = "SIZE" if setting.annotation is ByteSize else _METAVARS.get(name)
    option = typer.Option(declared, help=f"{setting.description}{shown}", metavar=metavar)
    assert isinstance(option, OptionInfo)
    return option


@app.callback()
def root(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(f"warmlane {__version__}")


app.command()(bench)


@app.command()
def serve(
    context: typer.Context,
    config: Annotated[Path | None, typer.Option(help="A TOML file of settings; flags and WARMLANE_* win.")] = None,
    model: Annotated[str | None, _option("model")] = None,
    on_demand: Annotated[list[str] | None, _option("on_demand")] = None,
    alias: Annotated[list[str] | None, _option("alias")] = None,
    load_timeout_s: Annotated[float | None, _option("load_timeout_s")] = None,
    engine: Annotated[EngineKind | None, _option("engine")] = None,
    chat_template: Annotated[Path | None, _option("chat_template")] = None,
    format: Annotated[str | None, _option("format")] = None,
    simulated_hash: Annotated[bool | None, _option("simulated_hash")] = None,
    host: Annotated[str | None, _option("host")] = None,
    port: Annotated[int | None, _option("port")] = None,
    flat: Annotated[bool | None, _option("flat")] = None,
    capacity: Annotated[int | None, _option("capacity")] = None,
    max_waiting: Annotated[int | None, _option("max_waiting")] = None,
    ctx: Annotated[int | None, _option("ctx")] = None,
    threads: Annotated[int | None, _option("threads")] = None,
    flash_attention: Annotated[FlashAttention | None, _option("flash_attention")] = None,
    hot_tokens: Annotated[int | None, _option("hot_tokens")] = None,
    ram_cache: Annotated[str | None, _option("ram_cache")] = None,
    disk_cache: Annotated[Path | None, _option("disk_cache")] = None,
    disk_cache_size: Annotated[str | None, _option("disk_cache_size")] = None,
    max_inter_token_ms: Annotated[float | None, _option("max_inter_token_ms")] = None,
    store: Annotated[str | None, _option("store")] = None,
    store_max_size: Annotated[str | None, _option("store_max_size")] = None,
    store_timeout_s: Annotated[float | None, _option("store_timeout_s")] = None,
    api_key: Annotated[list[str] | None, _option("api_key")] = None,
    admin_key: Annotated[str | None, _option("admin_key")] = None,
    api_keys: Annotated[Path | None, _option("api_keys")] = None,
    secret: Annotated[str | None, _option("secret")] = None,
    canonicalize: Annotated[bool | None, _option("canonicalize")] = None,
    key_reuse: Annotated[bool | None, _option("key_reuse")] = None,
    queue_timeout_s: Annotated[float | None, _option("queue_timeout_s")] = None,
    drain_timeout_s: Annotated[float | None, _option("drain_timeout_s")] = None,
    turn_timeout_s: Annotated[float | None, _option("turn_timeout_s")] = None,
    grace_s: Annotated[float | None, _option("grace_s")] = None,
    warm_capacity: Annotated[int | None, _option("warm_capacity")] = None,
    session_ttl_s: Annotated[float | None, _option("session_ttl_s")] = None,
    log_level: Annotated[LogLevel | None, _option("log_level")] = None,
    log_text: Annotated[bool | None, _option("log_text")] = None,
) -> int:
    """Serve a model over HTTP until SIGINT or SIGTERM."""
    given = {name: value for name, value in context.params.items() if value not in (None, (), [])}
    given.pop("config", None)
    return _serve(load_settings(given, config=config))


def _serve(settings: Settings) -> int:
    has_keys = bool(load_api_keys(settings)) or settings.admin_key is not None
    model = resolve_model(settings)
    resolve_on_demand(settings)
    resolve_aliases(settings)
    configure_logging(settings.log_level)
    announce_loading(model)
    # Imported late: it brings the web framework and the engine, which mistakes in the settings need not wait for.
    from warmlane.cli.compose import build
    from warmlane.cli.serve import run_server

    return run_server(
        settings, build, on_ready=lambda port: announce_ready(settings, model, port=port, has_keys=has_keys)
    )
