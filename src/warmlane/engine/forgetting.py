"""What is to be forgotten while no worker is there to do it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from warmlane.engine.tiers.erasing import erase_domains, erase_prompt
from warmlane.errors import EngineFault

NOT_REMOVED: Final = "The files of the disk cache could not be removed."

MAX_PROMPTS: Final = 1000
"""Prompts that are remembered singly. Beyond, their domains are forgotten whole: that costs work, and breaks no
promise."""


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The arguments of `Engine.forget`."""

    domain: bytes
    prompt: bytes = b""
    at: int = 0
    keep: int = 0


class OwedForgets:
    """What the next worker must forget before it serves: it may have found on disk what was there when it looked."""

    def __init__(self, *, most_prompts: int = MAX_PROMPTS) -> None:
        self._domains: dict[bytes, None] = {}
        self._prompts: list[Forgotten] = []
        self._most_prompts = most_prompts

    def add(self, what: Forgotten) -> None:
        if not what.prompt or len(self._prompts) >= self._most_prompts:
            self._domains[what.domain] = None
        else:
            self._prompts.append(what)

    def take(self) -> tuple[Forgotten, ...]:
        """All of it, which is then owed no more."""
        owed = (*map(Forgotten, self._domains), *self._prompts)
        self._domains, self._prompts = {}, []
        return owed


async def forget_files(directory: str | None, what: Forgotten) -> None:
    """Remove from the disk tier what a worker would have. Raises `EngineFault`."""
    if directory is None:
        return
    try:
        await asyncio.to_thread(_erase, Path(directory), what)
    except OSError as error:
        raise EngineFault(NOT_REMOVED) from error


def _erase(directory: Path, what: Forgotten) -> None:
    if what.prompt:
        erase_prompt(directory, what.domain, what.prompt, at=what.at, keep=what.keep)
    else:
        erase_domains(directory, [what.domain])
