"""Who may call: the API keys, and the rule that a server others can reach has some."""

from __future__ import annotations

import ipaddress
import tomllib
from pathlib import Path

from warmlane.config import ApiKey, Settings, parse_api_key
from warmlane.errors import ConfigError


def load_api_keys(settings: Settings) -> tuple[ApiKey, ...]:
    """The keys of `--api-key` and of the file of `--api-keys`; none means that anybody may call.

    Raises `ConfigError` for a bad file, a key that two tenants share, or a host that others can reach when there is no
    key at all.
    """
    keys = settings.api_key + (read_key_file(settings.api_keys) if settings.api_keys else ())
    tenant_of: dict[str, str] = {}
    for entry in keys:
        if tenant_of.setdefault(entry.key, entry.tenant) != entry.tenant:
            raise ConfigError(
                f"The tenants {tenant_of[entry.key]!r} and {entry.tenant!r} have the same API key; give each its own."
            )
    if settings.admin_key is not None and settings.admin_key in tenant_of:
        raise ConfigError("--admin-key is also the API key of a tenant; give each its own.")
    if not keys and settings.admin_key is None and not is_loopback(settings.host):
        raise ConfigError(
            f"--host {settings.host} can be reached from other machines, but there is no API key. "
            "Give --api-key TENANT=KEY or --api-keys FILE, or listen on 127.0.0.1."
        )
    return keys


def read_key_file(path: Path) -> tuple[ApiKey, ...]:
    """Keys of a file: if it ends in `.toml`, `tenant = "key"` or `tenant = ["key", …]`; else lines of `TENANT=KEY`,
    where empty lines and those that begin with `#` do not count.

    Raises `ConfigError`, which never shows a key.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"The file of --api-keys, {str(path)!r}, cannot be read: {reason}.") from None
    keys = _from_toml(path, text) if path.suffix == ".toml" else _from_lines(path, text)
    if not keys:
        raise ConfigError(f"The file of --api-keys, {str(path)!r}, holds no key. Write lines of TENANT=KEY.")
    return keys


def _from_lines(path: Path, text: str) -> tuple[ApiKey, ...]:
    keys = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            keys.append(parse_api_key(line))
        except ValueError as error:
            raise ConfigError(f"{path}, line {number}: {error}.") from None
    return tuple(keys)


def _from_toml(path: Path, text: str) -> tuple[ApiKey, ...]:
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        # The parser's own message may quote a key.
        raise ConfigError(f'{path} is not TOML. Write lines such as: tenant = "key".') from None
    keys = []
    for tenant, value in table.items():
        for key in value if isinstance(value, list) else [value]:
            if not isinstance(key, str):
                raise ConfigError(f"{path}: {tenant!r} should be a key in quotes, or a list of them.")
            try:
                keys.append(parse_api_key(f"{tenant}={key}"))
            except ValueError as error:
                raise ConfigError(f"{path}: {tenant!r} {error}.") from None
    return tuple(keys)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a server that listens on `host`. A name other than localhost counts as not."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
