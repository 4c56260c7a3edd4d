"""Environment that llama.cpp and its OpenMP runtime read when they are loaded, so it must be set before that."""

from __future__ import annotations

from collections.abc import MutableMapping


def set_native_defaults(environment: MutableMapping[str, str]) -> None:
    """Fill in what is not set.

    `GGML_NO_BACKTRACE`: a native abort would start a debugger that holds the dying process. `GOMP_SPINCOUNT`: between
    the steps of a graph GNU OpenMP's threads spin by default; where something else wants the cores (a client on the
    same machine is enough) they then wait for a thread that cannot run. Measured on 2 loaded cores, 90th percentile of
    a decode: 24 to 110 ms asleep, 110 to 1,250 ms spinning; on idle cores there is no difference.
    """
    environment.setdefault("GGML_NO_BACKTRACE", "1")
    environment.setdefault("GOMP_SPINCOUNT", "0")
