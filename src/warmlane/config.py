"""Every setting of the server, and where its value comes from.

A command-line flag beats the environment (`WARMLANE_` and the upper-case name), which beats a TOML file, which beats
the default. The flag of a setting is its name with dashes.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

from pydantic import BeforeValidator, ByteSize, Field, FilePath, ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from warmlane.engine.config import EngineKind, FlashAttention
from warmlane.errors import ConfigError

DEFAULT_MODEL: Final = "smollm2-135m-instruct"
ENV_PREFIX: Final = "WARMLANE_"
CONFIG_VARIABLE: Final = "WARMLANE_CONFIG"


LEAST_RAM_OF_DISK = ByteSize(16 << 20)
"""What the disk cache is written from and read into: some hundred tokens of a small model."""


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class ApiKey:
    """One tenant's key; a tenant may have several."""

    tenant: str
    key: str = field(repr=False)


def parse_api_key(text: str) -> ApiKey:
    """`TENANT=KEY`. Raises `ValueError`, whose text never holds the key."""
    tenant, separator, key = text.strip().partition("=")
    tenant, key = tenant.strip(), key.strip()
    if not separator or not tenant or not key:
        raise ValueError("should be TENANT=KEY, both not empty")
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise ValueError("should have a key of printable ASCII without spaces, so that it fits an HTTP header")
    return ApiKey(tenant, key)


def _names(value: object) -> tuple[str, ...]:
    """From the environment: names between commas; from a flag or a file: a list."""
    if isinstance(value, str):
        value = [name.strip() for name in value.split(",") if name.strip()]
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) and name for name in value):
        raise ValueError('should be a list such as ["name"]')
    return tuple(value)


def _api_keys(value: object) -> tuple[ApiKey, ...]:
    """From the environment: keys between commas or spaces; from a flag or a file: a list."""
    if isinstance(value, str):
        value = value.replace(",", " ").split()
    if not isinstance(value, list | tuple):
        raise ValueError('should be a list such as ["tenant=key"]')
    keys = []
    for item in value:
        if not isinstance(item, str | ApiKey):
            raise ValueError('should be a list such as ["tenant=key"]')
        keys.append(parse_api_key(item) if isinstance(item, str) else item)
    return tuple(keys)


def default_store() -> str:
    """`$XDG_DATA_HOME/warmlane/warmlane.db`, by default below `~/.local/share`."""
    return str(_xdg("XDG_DATA_HOME", ".local/share") / "warmlane" / "warmlane.db")


def default_config_file() -> Path:
    """`$XDG_CONFIG_HOME/warmlane/warmlane.toml`, by default below `~/.config`."""
    return _xdg("XDG_CONFIG_HOME", ".config") / "warmlane" / "warmlane.toml"


def _xdg(variable: str, fallback: str) -> Path:
    # The XDG specification says to ignore a relative path.
    value = os.environ.get(variable, "")
    return Path(value) if value.startswith("/") else Path.home() / fallback


Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Settings(BaseSettings):
    """Checked one by one here; `load_settings` checks how they go together. Times are in seconds."""

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, env_ignore_empty=True, extra="forbid", frozen=True)

    model: str = Field(DEFAULT_MODEL, min_length=1, description="A model's name, or the path of a GGUF file.")
    on_demand: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_names)] = Field(
        (), description="A further model, loaded when it is first asked for; give it several times for several."
    )
    alias: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_names)] = Field(
        ("claude-*",),
        description="Another name of a model: PATTERN=MODEL, or PATTERN alone for the default model; give it several "
        "times for several.",
    )
    load_timeout_s: Seconds = Field(300.0, description="How long a model may take to load.")
    engine: EngineKind = Field(EngineKind.LLAMACPP, description="What answers: a model, or a script for tests.")
    chat_template: FilePath | None = Field(None, description="A Jinja file to use instead of the model's template.")
    format: str | None = Field(
        None, min_length=1, description="How the model writes calls and reasoning; by default as its template tells."
    )
    simulated_hash: bool = Field(False, description="Simulated engine: answer with a hash of the KV cells seen.")
    host: str = Field("127.0.0.1", min_length=1, description="The address to listen on.")
    port: int = Field(8080, ge=0, le=65535, description="The port to listen on; 0 takes a free one.")
    flat: bool = Field(False, description="One turn at a time, with one conversation's cache.")
    capacity: Count = Field(8, description="Turns that run at once.")
    max_waiting: int = Field(16, ge=0, description="Turns that may wait for a seat before more are refused.")
    ctx: int = Field(16384, ge=512, description="KV cells, in tokens, that all running turns share.")
    threads: Count | None = Field(None, description="Threads that compute; all cores by default.")
    flash_attention: FlashAttention = Field(
        FlashAttention.AUTO, description="Whether attention is fused: on, off, or auto, which is off on a CPU."
    )
    hot_tokens: Count | None = Field(
        None, description="KV cells that warm conversations may keep while no turn runs; 8192 on a CPU by default."
    )
    ram_cache: ByteSize = Field(
        ByteSize(2 << 30),
        description="Memory for the KV of conversations that left the cells, such as 2GiB; 0 for none, and at least "
        "16MiB with --disk-cache, whose files are written from it.",
    )
    disk_cache: Path | None = Field(
        None, description="A folder for the KV of conversations, so that a restart is warm; none by default."
    )
    disk_cache_size: ByteSize = Field(ByteSize(8 << 30), description="What the folder of --disk-cache may hold.")
    max_inter_token_ms: Seconds | None = Field(
        None,
        description="The longest gap in a stream that a prefill beside it may cause; no bound by default. With one, "
        "long prompts beside streams have KV cells of their own, so that these take twice the memory.",
    )
    store: str = Field(
        default_factory=default_store,
        min_length=1,
        description="Where responses are kept: a path, a PostgreSQL URL, or memory:.",
    )
    store_timeout_s: Seconds = Field(5.0, description="How long the store may take before a request gets 503.")
    store_max_size: ByteSize = Field(
        ByteSize(10 << 30), description="What the store may hold before the oldest conversations go; 0 for no limit."
    )
    api_key: Annotated[tuple[ApiKey, ...], NoDecode, BeforeValidator(_api_keys)] = Field(
        (), repr=False, description="TENANT=KEY; give it several times for several keys."
    )
    admin_key: str | None = Field(
        None, min_length=8, repr=False, description="A key that sees and ends the sessions of every tenant."
    )
    api_keys: FilePath | None = Field(None, description="A file of keys: lines of TENANT=KEY, or TOML.")
    secret: str | None = Field(
        None,
        pattern="^[0-9a-fA-F]{64}$",
        repr=False,
        description="32 bytes in hex that cache keys and domains derive from; by default in a key file.",
    )
    canonicalize: bool = Field(
        True,
        description="Put tools and the keys of their schemas in order, and leave out clients' billing lines, so that "
        "prompts share a prefix.",
    )
    key_reuse: bool = Field(True, description="Find warm conversations by prompt_cache_key.")
    queue_timeout_s: Seconds = Field(300.0, description="How long a turn may wait for a seat.")
    drain_timeout_s: Seconds = Field(30.0, description="How long a client may read nothing before its turn ends.")
    turn_timeout_s: Seconds | None = Field(None, description="How long a turn may run; no limit by default.")
    grace_s: float = Field(30.0, ge=0, allow_inf_nan=False, description="How long turns may finish at shutdown.")
    warm_capacity: Count = Field(64, description="Conversations kept warm.")
    session_ttl_s: Seconds = Field(1800.0, description="How long a conversation stays warm without a turn.")
    log_level: LogLevel = Field(LogLevel.INFO, description="The least level that is logged.")
    log_text: bool = Field(False, description="Let logs hold what was said.")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls)

    @property
    def n_threads(self) -> int:
        """Threads that compute, in number."""
        return self.threads or available_cores()


def available_cores() -> int:
    """The cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def flag_of(name: str) -> str:
    """The command-line flag of a setting."""
    return "--" + name.replace("_", "-")


def variable_of(name: str) -> str:
    """The environment variable of a setting."""
    return ENV_PREFIX + name.upper()


def load_settings(flags: Mapping[str, object], *, config: Path | None = None) -> Settings:
    """The settings in force. `flags` are those given on the command line, by setting; `config` is the file of
    `--config`, which must then exist.

    Raises `ConfigError` naming the flag, variable or file at fault.
    """
    _refuse_unknown_variables()
    path = _config_file(config)

    class FromFile(Settings):
        model_config = SettingsConfigDict(toml_file=path)

    read: Callable[..., Settings] = FromFile
    try:
        settings = read(**flags)
    except ValidationError as error:
        raise ConfigError(_explain(error.errors(include_url=False)[0], flags, path)) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}.") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from None
    if settings.simulated_hash and settings.engine is not EngineKind.SIMULATED:
        raise ConfigError("--simulated-hash works with --engine simulated only; give both or neither.")
    if settings.disk_cache is not None and not settings.flat and settings.ram_cache < LEAST_RAM_OF_DISK:
        raise ConfigError(
            f"--ram-cache {settings.ram_cache.human_readable()} is too little for --disk-cache, whose files are written"
            f" from that memory; give at least {LEAST_RAM_OF_DISK.human_readable()}, or no --disk-cache."
        )
    return settings


def _config_file(given: Path | None) -> Path | None:
    if given is None and os.environ.get(CONFIG_VARIABLE):
        given = Path(os.environ[CONFIG_VARIABLE])
    if given is not None:
        if not given.is_file():
            raise ConfigError(f"The file of --config, {str(given)!r}, does not exist or is not a file.")
        return given
    default = default_config_file()
    return default if default.is_file() else None


def _refuse_unknown_variables() -> None:
    names = {name.upper() for name in Settings.model_fields} | {CONFIG_VARIABLE.removeprefix(ENV_PREFIX)}
    for variable in os.environ:
        name = variable.upper().removeprefix(ENV_PREFIX)
        if variable.upper().startswith(ENV_PREFIX) and name not in names:
            guess = _guess(name, names, prefix=ENV_PREFIX)
            raise ConfigError(f"The environment variable {variable} names no setting; unset it.{guess}")


def _explain(error: ErrorDetails, flags: Mapping[str, object], path: Path | None) -> str:
    """One line: where the value came from, what it was, what would be right."""
    name = str(error["loc"][0])
    if error["type"] == "extra_forbidden":
        known = set(Settings.model_fields)
        return f"{path}: {name!r} is not a setting.{_guess(name.replace('-', '_'), known)}"
    secret = name in ("api_key", "admin_key", "secret")
    shown = _shown(error["input"])
    if name in flags:
        source = flag_of(name) if secret else f"{flag_of(name)} {shown}"
    elif any(variable.upper() == variable_of(name) for variable in os.environ):
        source = variable_of(name) if secret else f"{variable_of(name)}={shown}"
    else:
        source = f"{path}: {name}" if secret else f"{path}: {name} = {shown}"
    return f"{source} {_complaint(error)}."


def _shown(value: object) -> str:
    return str(value.value if isinstance(value, StrEnum) else value)


def _complaint(error: ErrorDetails) -> str:
    if error["type"] == "path_not_file":
        return "does not point to a file; give the path of one that exists"
    message = error["msg"]
    for prefix in ("Input ", "Value error, ", "String "):
        message = message.removeprefix(prefix)
    return message


def _guess(word: str, known: set[str], *, prefix: str = "") -> str:
    close = difflib.get_close_matches(word, sorted(known), n=1)
    if close:
        return f" Did you mean {prefix}{close[0]}?"
    return f" Known: {', '.join(prefix + name for name in sorted(known))}."
