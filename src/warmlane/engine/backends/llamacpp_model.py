"""Loading a GGUF file: every way it can be unusable becomes one line that says what to do."""

from __future__ import annotations

import ctypes
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from llama_cpp import llama_cpp as lib

from warmlane.engine.backends.llamacpp_log import first_error, route_log
from warmlane.engine.protocol import SamplingParams
from warmlane.errors import ConfigError

_MAGIC = b"GGUF"
_HEADER_BYTES = 24
_FINGERPRINT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class GgufModel:
    """A loaded model and its vocabulary; `free` ends both."""

    model: lib.llama_model_p
    vocab: lib.llama_vocab_p

    @property
    def n_ctx_train(self) -> int:
        return int(lib.llama_model_n_ctx_train(self.model))

    @property
    def n_swa(self) -> int:
        """Width of the sliding attention window in tokens, 0 for full attention."""
        return int(lib.llama_model_n_swa(self.model))

    @property
    def recurrent(self) -> bool:
        """Whether any layer keeps a running state that cannot be cut back."""
        return bool(lib.llama_model_is_recurrent(self.model) or lib.llama_model_is_hybrid(self.model))

    @property
    def chat_template(self) -> str | None:
        text = lib.llama_model_chat_template(self.model, None)
        return text.decode("utf-8", "replace") if text else None

    @property
    def name(self) -> str:
        """The model's own name for itself; empty if it has none."""
        return self._meta("general.name") or ""

    @property
    def sampling(self) -> SamplingParams:
        """The settings the model's makers recommend in the file, ours where they say nothing."""
        ours = SamplingParams()
        return SamplingParams(
            temperature=self._number("general.sampling.temp", ours.temperature),
            top_k=int(self._number("general.sampling.top_k", ours.top_k)),
            top_p=self._number("general.sampling.top_p", ours.top_p),
            min_p=self._number("general.sampling.min_p", ours.min_p),
        )

    def free(self) -> None:
        lib.llama_model_free(self.model)

    def _number(self, key: str, default: float) -> float:
        try:
            return float(self._meta(key) or default)
        except ValueError:
            return default

    def _meta(self, key: str) -> str | None:
        buffer = ctypes.create_string_buffer(256)
        n = lib.llama_model_meta_val_str(self.model, key.encode(), buffer, 256)
        return buffer.value.decode("utf-8", "replace") if n >= 0 else None


def load_model(path: str | None) -> GgufModel:
    """Load the weights (memory-mapped). Raises `ConfigError`."""
    if path is None:
        raise ConfigError("No model file is given. Use --model PATH with the path of a GGUF file.")
    check_file(Path(path))
    route_log()
    lib.llama_backend_init()
    model = lib.llama_model_load_from_file(os.fsencode(path), lib.llama_model_default_params())
    if not model:
        raise ConfigError(
            f"The model file {path} cannot be loaded: {first_error() or 'llama.cpp gave no reason'}. "
            "It is damaged, incomplete, or of an architecture this build does not know; get it again or pick another."
        )
    vocab = lib.llama_model_get_vocab(model)
    decodes = bool(lib.llama_model_has_decoder(model)) and not lib.llama_model_has_encoder(model)
    if not vocab or lib.llama_vocab_n_tokens(vocab) <= 0 or not decodes or lib.llama_model_is_diffusion(model):
        lib.llama_model_free(model)
        raise ConfigError(f"The model file {path} holds no decoder-only text model. Pick a chat model in GGUF.")
    return GgufModel(model, vocab)


def check_file(path: Path) -> None:
    """Refuse what is plainly no GGUF file, before native code sees it. Raises `ConfigError`."""
    try:
        with path.open("rb") as file:
            header = file.read(_HEADER_BYTES)
    except FileNotFoundError:
        raise ConfigError(f"The model file {path} does not exist. Give --model the path of a GGUF file.") from None
    except OSError as error:
        raise ConfigError(f"The model file {path} cannot be read: {error.strerror}. Check path and rights.") from None
    if len(header) < _HEADER_BYTES or header[:4] != _MAGIC:
        raise ConfigError(f"The model file {path} is not a GGUF file. Give --model the path of one.")


def file_fingerprint(path: Path) -> str:
    """SHA-256 over the file's size, its first and its last MiB: the metadata, the tensor table and some weights. It
    tells models apart without reading gigabytes; it is no proof against somebody who forges one."""
    size = path.stat().st_size
    digest = hashlib.sha256(size.to_bytes(8, "little"))
    with path.open("rb") as file:
        digest.update(file.read(_FINGERPRINT_BYTES))
        file.seek(max(0, size - _FINGERPRINT_BYTES))
        digest.update(file.read(_FINGERPRINT_BYTES))
    return digest.hexdigest()
