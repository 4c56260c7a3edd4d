"""Names that stand for a served model: clients with a vendor's model names built in ask for those."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase


class Aliases:
    """Shell-style patterns (`claude-*`) and the served name each stands for; the first that matches counts."""

    def __init__(self, targets: Mapping[str, str] | None = None) -> None:
        self._targets = tuple((targets or {}).items())

    def target(self, name: str) -> str | None:
        """The served name that `name` stands for, if any."""
        return next((target for pattern, target in self._targets if fnmatchcase(name, pattern)), None)
