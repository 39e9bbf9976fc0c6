"""Structured logging: `log(Action.X, sale_id=..., ...)`. Ids on every line; no secrets, no buyers' data beyond ids."""

from __future__ import annotations

import logging
import sys

import structlog

from service.domain.errors import SettingRefused
from service.observability.actions import Action

LogValue = str | int | float | bool | None

_logger = structlog.get_logger()


def log(action: Action, **facts: LogValue) -> None:
    _logger.info(action.value, **facts)


def warn(action: Action, **facts: LogValue) -> None:
    """Something that a person may have to look at."""
    _logger.warning(action.value, **facts)


def error(action: Action, **facts: LogValue) -> None:
    """A bug: the line has the place, and a person has to look."""
    _logger.error(action.value, **facts)


LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


def configure(*, json: bool, level: str, at_least: str | None = None) -> None:
    """To standard error: JSON lines for machines, coloured lines for people. Lines below `level`, and below `at_least`
    where a command wants quiet, are not written."""
    if level.upper() not in LEVELS:
        raise SettingRefused("log_level", f"is one of {', '.join(LEVELS)}")
    names = logging.getLevelNamesMapping()
    threshold = max(names[level.upper()], names[at_least or "DEBUG"])
    renderer = structlog.processors.JSONRenderer() if json else structlog.dev.ConsoleRenderer()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
            structlog.processors.EventRenamer("action"),
            renderer,
        ]
        if json
        else [structlog.processors.add_log_level, structlog.processors.TimeStamper(fmt="iso", utc=True), renderer],
        wrapper_class=structlog.make_filtering_bound_logger(threshold),
        # Looked up at each line: whoever redirects standard error, a test or a supervisor, gets what follows.
        logger_factory=lambda *_: structlog.PrintLogger(sys.stderr),
        cache_logger_on_first_use=False,
    )
