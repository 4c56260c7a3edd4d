"""What the server tells the person who started it."""

from __future__ import annotations

import ipaddress
import json
import shlex

from rich.console import Console
from rich.text import Text

from warmlane.cli.models import ModelSource
from warmlane.config import Settings


def announce_loading(model: ModelSource) -> None:
    if model.path is not None:
        _say(Text(f"Loading {model.name} …"))


def announce_ready(settings: Settings, model: ModelSource, *, port: int, has_keys: bool) -> None:
    """Where the server is, and a command line that works as typed (with keys: once the key is put in)."""
    base_url = base_url_of(settings.host, port)
    _say(Text.assemble("Serving ", (model.name, "bold"), " on ", (base_url, "bold"), ". Stop with Ctrl+C. Try:"))
    _say(Text())
    _say(Text("  " + curl_line(base_url, model.name, has_keys=has_keys)))
    _say(Text())


def base_url_of(host: str, port: int) -> str:
    """A URL this machine reaches the server by: a wildcard address becomes the loopback one of its family."""
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return f"http://{host}:{port}"
    if address.version == 6:
        return f"http://[{'::1' if address.is_unspecified else address}]:{port}"
    return f"http://{'127.0.0.1' if address.is_unspecified else address}:{port}"


def curl_line(base_url: str, model: str, *, has_keys: bool) -> str:
    """One line for a POSIX shell. The key is left for the reader to fill in: terminals are logged."""
    body = json.dumps({"model": model, "input": "Name three rivers."}, ensure_ascii=False)
    key = "-H 'authorization: Bearer YOUR_KEY' " if has_keys else ""
    return f"curl {base_url}/v1/responses -H 'content-type: application/json' {key}-d {shlex.quote(body)}"


def _say(text: Text) -> None:
    # Soft-wrapped, so that a line copied from the terminal is one line.
    Console().print(text, soft_wrap=True)
