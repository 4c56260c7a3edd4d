"""What the machine did while something was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_STAT: Final = Path("/proc/stat")
_STEAL: Final = 7
_N_KINDS: Final = 8
"""user, nice, system, idle, iowait, irq, softirq, steal; what comes behind is in these already (proc_stat(5))."""


class StolenTime:
    """Counts from its making on what the host of this virtual machine keeps from it. `stat` is the kernel's file."""

    def __init__(self, stat: Path = _STAT) -> None:
        self._stat = stat
        self._before = self._read()

    def share(self) -> float | None:
        """How much of all processors' time it was, idle time included, from 0 to 1; None where the kernel does not
        count."""
        now = self._read()
        if now is None or self._before is None:
            return None
        spent = [after - before for before, after in zip(self._before, now, strict=True)]
        return spent[_STEAL] / sum(spent) if sum(spent) > 0 else None

    def _read(self) -> list[int] | None:
        try:
            name, *times = self._stat.read_text().partition("\n")[0].split()
            counted = [int(time) for time in times[:_N_KINDS]]
        except (OSError, ValueError):
            return None
        return counted if name == "cpu" and len(counted) == _N_KINDS else None
