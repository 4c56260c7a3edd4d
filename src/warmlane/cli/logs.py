"""How the process logs: one line an event on stderr, JSON unless a person is watching."""

from __future__ import annotations

import logging
import logging.config
import sys

import structlog

from warmlane.config import LogLevel


def configure_logging(level: LogLevel) -> None:
    """Send structlog and the standard library's logging through one formatter. Libraries speak from WARNING up."""
    shared: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *_renderers()],
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(logging.WARNING, _number(level)))
    logging.getLogger("warmlane").setLevel(_number(level))


def _renderers() -> list[structlog.types.Processor]:
    if sys.stderr.isatty():
        # The pretty traceback shows local variables, prompts among them.
        return [structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]


def _number(level: LogLevel) -> int:
    return logging.getLevelNamesMapping()[level.value.upper()]
