"""What the settings turn into where no server is needed to see it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from warmlane.cli.compose import disk_eraser, make_secrets
from warmlane.config import Settings
from warmlane.engine.tiers.segment_file import make_header, write_draft

SECRET = "ab" * 32


def domain(settings: Settings) -> bytes:
    return make_secrets(settings).domain("ann")


def test_a_configured_secret_is_used_and_makes_no_file(tmp_path: Path) -> None:
    first = Settings(store=str(tmp_path / "w.db"), secret=SECRET)
    second = Settings(store="memory:", secret=SECRET.upper())
    assert domain(first) == domain(second)
    assert list(tmp_path.iterdir()) == []


def test_the_key_file_is_beside_the_store(tmp_path: Path) -> None:
    settings = Settings(store=str(tmp_path / "w.db"), disk_cache=tmp_path / "kv")
    assert domain(settings) == domain(settings)
    assert [path.name for path in tmp_path.iterdir()] == ["w.db.key"]


def test_a_disk_cache_has_a_key_file_of_its_own_where_the_store_is_in_memory(tmp_path: Path) -> None:
    """Else each restart would draw another secret, and every file would be a miss."""
    settings = Settings(store="memory:", disk_cache=tmp_path / "kv")
    assert domain(settings) == domain(settings)
    (key,) = (tmp_path / "kv").iterdir()
    assert (key.stat().st_mode & 0o777, (tmp_path / "kv").stat().st_mode & 0o777) == (0o600, 0o700)


def test_with_neither_the_secret_ends_with_the_process() -> None:
    settings = Settings(store="memory:")
    assert domain(settings) != domain(settings)


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*.kv"))


async def test_the_files_of_models_that_are_not_loaded_are_erased_by_domain(tmp_path: Path) -> None:
    for model in ("cold", "other", "loaded"):
        (tmp_path / model).mkdir()
        for domain in (b"a" * 16, b"b" * 16):
            data = np.zeros(8, dtype=np.uint8)
            header = make_header(key=b"k", domain=domain, start=0, tokens=np.arange(3, dtype=np.int32), data=data)
            path = tmp_path / model / f"{domain.decode()}.kv"
            write_draft(path, header, data)[0].replace(path)
    settings = Settings(store="memory:", disk_cache=tmp_path)
    models = frozenset({"cold", "other", "loaded", "never-seen"})
    await disk_eraser(settings, models)(frozenset({b"a" * 16}), frozenset({"loaded"}))

    assert files(tmp_path) == [
        f"cold/{'b' * 16}.kv",
        f"loaded/{'a' * 16}.kv",
        f"loaded/{'b' * 16}.kv",
        f"other/{'b' * 16}.kv",
    ]
    await disk_eraser(Settings(store="memory:"), models)(frozenset({b"b" * 16}), frozenset())
