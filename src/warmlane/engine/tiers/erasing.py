"""Removing files of the disk tier while no worker has them: what is forgotten is gone though nobody serves."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from warmlane.engine.tiers.segment_file import Header, remove_drafts, segment_files
from warmlane.engine.vectors import common_prefix, digest


def erase_domains(directory: Path, domains: Collection[bytes]) -> None:
    """Remove every file of these domains, and what a worker that was killed has left half-written. A worker that has
    indexed them meanwhile misses them. Raises `OSError`."""
    for path, header in _files(directory):
        if header.domain in domains:
            path.unlink(missing_ok=True)


def erase_prompt(directory: Path, domain: bytes, prompt: bytes, *, at: int, keep: int) -> None:
    """Remove what begins with a prompt, as `Engine.forget` says. Raises `OSError`."""
    mine = [(path, header.ids) for path, header in _files(directory) if header.domain == domain]
    alike = [tokens for _, tokens in mine if tokens.size >= at and digest(tokens[:at]) == prompt]
    for path, tokens in mine:
        if any(common_prefix(tokens, turn) > keep for turn in alike):
            path.unlink(missing_ok=True)


def _files(directory: Path) -> Iterator[tuple[Path, Header]]:
    """The whole files; damaged ones are removed, as nobody can tell whose they are."""
    remove_drafts(directory)
    for found in segment_files(directory):
        if found.whole is None:
            found.path.unlink(missing_ok=True)
        else:
            yield found.path, found.whole[0]
