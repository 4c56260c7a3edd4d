"""Where a setting comes from, and what is said of a bad one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from warmlane.cli.keys import is_loopback, load_api_keys, read_key_file
from warmlane.config import ApiKey, Settings, flag_of, load_settings, variable_of
from warmlane.engine.config import EngineKind
from warmlane.errors import ConfigError

DOCS = Path(__file__).parents[3] / "docs" / "configuration.md"


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for variable in list(os.environ):
        if variable.upper().startswith("WARMLANE_"):
            monkeypatch.delenv(variable)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg-config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "xdg-data"))


def toml(folder: Path, text: str) -> Path:
    path = folder / "settings.toml"
    path.write_text(text)
    return path


def test_defaults(tmp_path: Path) -> None:
    settings = load_settings({})

    assert (settings.model, settings.engine) == ("smollm2-135m-instruct", EngineKind.LLAMACPP)
    assert (settings.host, settings.port) == ("127.0.0.1", 8080)
    assert (settings.capacity, settings.max_waiting, settings.ctx) == (8, 16, 16384)
    assert settings.store == str(tmp_path / "xdg-data" / "warmlane" / "warmlane.db")
    assert settings.n_threads >= 1


def test_a_flag_beats_the_environment_which_beats_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = toml(tmp_path, "port = 1001\ncapacity = 2\nmax_waiting = 3\n")
    monkeypatch.setenv("WARMLANE_PORT", "1002")
    monkeypatch.setenv("WARMLANE_CAPACITY", "4")

    settings = load_settings({"port": 1003}, config=path)

    assert (settings.port, settings.capacity, settings.max_waiting, settings.ctx) == (1003, 4, 3, 16384)


def test_the_file_of_the_xdg_folder_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "xdg-config" / "warmlane"
    folder.mkdir(parents=True)
    (folder / "warmlane.toml").write_text("port = 1234\n")

    assert load_settings({}).port == 1234


def test_the_file_may_be_named_by_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WARMLANE_CONFIG", str(toml(tmp_path, "port = 1234\n")))

    assert load_settings({}).port == 1234


def test_a_relative_xdg_folder_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "somewhere")

    assert load_settings({}).store == str(Path.home() / ".local/share/warmlane/warmlane.db")


def test_empty_variables_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARMLANE_PORT", "")

    assert load_settings({}).port == 8080


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        ({"port": 70000}, "--port 70000 should be less than or equal to 65535."),
        ({"port": -1}, "--port -1 should be greater than or equal to 0."),
        ({"capacity": 0}, "--capacity 0 should be greater than or equal to 1."),
        ({"max_waiting": -1}, "--max-waiting -1 should be greater than or equal to 0."),
        ({"ctx": 1}, "--ctx 1 should be greater than or equal to 512."),
        ({"threads": 0}, "--threads 0 should be greater than or equal to 1."),
        ({"queue_timeout_s": 0.0}, "--queue-timeout-s 0.0 should be greater than 0."),
        ({"grace_s": float("inf")}, "--grace-s inf should be a finite number."),
        ({"model": ""}, "--model  should have at least 1 character."),
        (
            {"chat_template": "/does/not/exist"},
            "--chat-template /does/not/exist does not point to a file; give the path of one that exists.",
        ),
        ({"api_key": ["secret"]}, "--api-key should be TENANT=KEY, both not empty."),
        (
            {"disk_cache": "/tmp/kv", "ram_cache": "1MiB"},
            "--ram-cache 1.0MiB is too little for --disk-cache, whose files are written from that memory; give at "
            "least 16.0MiB, or no --disk-cache.",
        ),
        ({"simulated_hash": True}, "--simulated-hash works with --engine simulated only; give both or neither."),
    ],
)
def test_a_bad_flag_is_named(flags: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(flags)
    assert caught.value.message == complaint


@pytest.mark.parametrize(
    ("variable", "value", "complaint"),
    [
        ("WARMLANE_PORT", "x", "WARMLANE_PORT=x should be a valid integer"),
        ("WARMLANE_ENGINE", "gpu", "WARMLANE_ENGINE=gpu should be 'llamacpp' or 'simulated'"),
        ("WARMLANE_API_KEY", "hush", "WARMLANE_API_KEY should be TENANT=KEY"),
        ("WARMLANE_PROT", "1", "WARMLANE_PROT names no setting; unset it. Did you mean WARMLANE_PORT?"),
        ("WARMLANE_XYZZY", "1", "WARMLANE_XYZZY names no setting; unset it. Known: WARMLANE_ADMIN_KEY,"),
        ("WARMLANE_CONFIG", "/does/not/exist", "'/does/not/exist', does not exist"),
    ],
)
def test_a_bad_variable_is_named(monkeypatch: pytest.MonkeyPatch, variable: str, value: str, complaint: str) -> None:
    monkeypatch.setenv(variable, value)

    with pytest.raises(ConfigError) as caught:
        load_settings({})
    assert complaint in caught.value.message
    assert "hush" not in caught.value.message


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("port = 'x'\n", "settings.toml: port = x should be a valid integer"),
        ("port = \n", "settings.toml is not TOML: Invalid value (at line 1"),
        ("prot = 1\n", "settings.toml: 'prot' is not a setting. Did you mean port?"),
        ("max-waiting = 1\n", "settings.toml: 'max-waiting' is not a setting. Did you mean max_waiting?"),
        ("api_key = 1\n", 'settings.toml: api_key should be a list such as ["tenant=key"]'),
        ("[server]\nport = 1\n", "settings.toml: 'server' is not a setting."),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings({}, config=toml(tmp_path, text))
    assert complaint in caught.value.message


def test_a_file_that_is_not_text_or_not_there(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_bytes(b"\xff\xfe")

    with pytest.raises(ConfigError, match="is not TOML"):
        load_settings({}, config=path)
    for missing in (tmp_path / "none.toml", tmp_path):
        with pytest.raises(ConfigError, match="--config"):
            load_settings({}, config=missing)


def test_keys_come_from_every_source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WARMLANE_API_KEY", "ada=k1, bob=k2")
    lines = tmp_path / "keys"
    lines.write_text("# who may call\n\n carol = k3=\nada=k4\n")

    keys = load_api_keys(load_settings({"api_keys": str(lines)}))

    assert keys == (ApiKey("ada", "k1"), ApiKey("bob", "k2"), ApiKey("carol", "k3="), ApiKey("ada", "k4"))
    assert "k1" not in repr(keys)


def test_a_key_file_may_be_toml(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    path.write_text('ada = "k1"\nbob = ["k2", "k3"]\n')

    assert read_key_file(path) == (ApiKey("ada", "k1"), ApiKey("bob", "k2"), ApiKey("bob", "k3"))


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("keys", b"ada=k1\nhush\n", "line 2: should be TENANT=KEY"),
        ("keys", b"ada=hush hush\n", "line 1: should have a key of printable ASCII"),
        ("keys", b"# nobody\n", "holds no key"),
        ("keys", b"\xff", "not UTF-8"),
        ("keys.toml", b'ada = "hush\n', "is not TOML"),
        ("keys.toml", b"ada = 1\n", "'ada' should be a key in quotes"),
        ("keys.toml", b'ada = ""\n', "'ada' should be TENANT=KEY"),
    ],
)
def test_a_bad_key_file_is_refused_without_showing_a_key(
    tmp_path: Path, name: str, content: bytes, complaint: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)

    with pytest.raises(ConfigError) as caught:
        read_key_file(path)
    assert complaint in caught.value.message
    assert "hush" not in caught.value.message


def test_two_tenants_cannot_share_a_key() -> None:
    with pytest.raises(ConfigError, match="'ada' and 'bob' have the same API key"):
        load_api_keys(load_settings({"api_key": ["ada=k", "bob=k"]}))


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("[::1]", True),
        ("LOCALHOST", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.1.2", False),
        ("example.org", False),
    ],
)
def test_a_host_that_others_reach_needs_a_key(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback
    if loopback:
        assert load_api_keys(load_settings({"host": host})) == ()
    else:
        with pytest.raises(ConfigError, match="--api-key TENANT=KEY"):
            load_api_keys(load_settings({"host": host}))
    assert load_api_keys(load_settings({"host": host, "api_key": ["ada=k"]}))


def test_the_documentation_has_every_setting() -> None:
    rows = [line for line in DOCS.read_text().splitlines() if line.startswith("| `")]
    documented = {tuple(cell.strip(" `") for cell in row.split("|")[1:4]) for row in rows}

    assert {(name, flag_of(name), variable_of(name)) for name in Settings.model_fields} <= documented
