"""Environment that llama.cpp and its OpenMP runtime read when they are loaded, so it must be set before that."""

from __future__ import annotations

from collections.abc import MutableMapping


def set_native_defaults(environment: MutableMapping[str, str]) -> None:
    """Fill in what is not set.

    `GGML_NO_BACKTRACE`: a native abort would start a debugger that holds the dying process. `GOMP_SPINCOUNT`: how
    often a thread of GNU OpenMP looks for its fellows, between the steps of a graph, before it sleeps. Sleeping at once
    wastes idle cores; looking for long, as is the default, wastes the core of the thread that is waited for wherever
    something else wants one. Median ms of a decode step (1 row / 4 rows behind 1k shared cells; 2 cores):

        looks                 0          1,000         10,000
        idle machine       43 /  90     12 /  36      17 /  43
        a third of a core  45 / 109     28 /  75      26 /  87
        a whole core busy  31 /  89     48 / 114     128 / 274
    """
    environment.setdefault("GGML_NO_BACKTRACE", "1")
    environment.setdefault("GOMP_SPINCOUNT", "1000")
