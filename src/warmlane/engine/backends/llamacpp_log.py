"""llama.cpp's log, routed to `logging` at debug level. The library has one callback a process, so this is global."""

from __future__ import annotations

import ctypes
import logging
from collections import deque

from llama_cpp import llama_cpp as lib

log = logging.getLogger("warmlane.llamacpp")

_LEVEL_ERROR = 4
_recent_errors: deque[str] = deque(maxlen=8)


def _on_line(level: int, text: bytes, user_data: ctypes.c_void_p) -> None:
    line = text.decode("utf-8", "replace").strip()
    if line and level == _LEVEL_ERROR:
        _recent_errors.append(line)
    if line and line != ".":
        log.debug("%s", line)


_route = lib.llama_log_callback(_on_line)


def route_log() -> None:
    """Take the log over from stderr, and forget earlier errors."""
    _recent_errors.clear()
    lib.llama_log_set(_route, ctypes.c_void_p(0))


def first_error() -> str | None:
    """The first thing llama.cpp complained about since `route_log`: the cause, where later lines are consequences."""
    return _recent_errors[0] if _recent_errors else None
