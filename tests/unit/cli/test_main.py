"""The command line, as its user sees it."""

from __future__ import annotations

import os
import shlex
import socket

import pytest

from warmlane import __version__
from warmlane.cli.announce import base_url_of, curl_line
from warmlane.cli.main import main
from warmlane.cli.serve import bind
from warmlane.errors import ConfigError


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in list(os.environ):
        if variable.upper().startswith("WARMLANE_"):
            monkeypatch.delenv(variable)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("serve --prot 80", "No such option: --prot"),
        ("serve --port eighty", "'--port'"),
        ("serve --port", "'--port' requires an argument"),
        ("serve --port 70000", "--port 70000 should be"),
        ("serve --engine gpu", "'gpu' is not one of 'llamacpp', 'simulated'"),
        ("serve --model nothing", "--model 'nothing' is neither"),
        ("serve --host 0.0.0.0", "Give --api-key TENANT=KEY"),
        ("serve --api-key hush", "--api-key should be TENANT=KEY"),
        ("serve --config /does/not/exist", "--config"),
        ("serve more", "unexpected extra argument"),
        ("sevre", "No such command 'sevre'"),
    ],
)
def test_a_mistake_is_one_line_on_stderr_and_exit_2(
    capsys: pytest.CaptureFixture[str], line: str, complaint: str
) -> None:
    code = main(shlex.split(line))

    out, err = capsys.readouterr()
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("warmlane: ")
    assert complaint in err
    assert "hush" not in err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    assert capsys.readouterr().out == f"warmlane {__version__}\n"


@pytest.mark.parametrize("line", ["", "--help", "serve --help"])
def test_help(capsys: pytest.CaptureFixture[str], line: str) -> None:
    assert main(shlex.split(line)) == 0
    assert "Usage: warmlane" in capsys.readouterr().out


def test_a_port_in_use_is_named() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]

        with pytest.raises(ConfigError, match=f"Port {port} on 127.0.0.1 is in use.*--port"):
            bind("127.0.0.1", port)


@pytest.mark.parametrize("host", ["203.0.113.7", "no such host", "x" * 300])
def test_a_foreign_address_is_named(host: str) -> None:
    with pytest.raises(ConfigError, match="is not an address of this machine"):
        bind(host, 0)


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:80"),
        ("0.0.0.0", "http://127.0.0.1:80"),
        ("::", "http://[::1]:80"),
        ("[::1]", "http://[::1]:80"),
        ("localhost", "http://localhost:80"),
    ],
)
def test_the_url_is_one_this_machine_can_use(host: str, url: str) -> None:
    assert base_url_of(host, 80) == url


def test_the_curl_line_is_one_shell_command() -> None:
    words = shlex.split(curl_line("http://127.0.0.1:80", "it's", has_keys=True))

    assert words[:2] == ["curl", "http://127.0.0.1:80/v1/responses"]
    assert "authorization: Bearer YOUR_KEY" in words
    assert words[-1] == '{"model": "it\'s", "input": "Name three rivers."}'
