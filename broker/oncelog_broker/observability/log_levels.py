"""The levels of this process's loggers, shown and changed while the broker runs (KIP-412).

A level holds until the process ends, as in Kafka. Names of loggers are those of Python modules (`oncelog_broker.log`);
`root` is the logger from which all others inherit.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

ROOT: Final = "root"
LEVELS: Final[Mapping[str, int]] = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": logging.NOTSET + 1,
}
"""Kafka's levels, the most severe first, and Python's numbers for them."""


def logger_names() -> list[str]:
    """The root logger and every logger that a module has made so far, sorted."""
    made = logging.root.manager.loggerDict
    return sorted([ROOT, *(name for name, logger in list(made.items()) if isinstance(logger, logging.Logger))])


def level_of(name: str) -> str:
    """The effective level of a logger, as one of LEVELS: the least severe that it writes."""
    effective = _logger(name).getEffectiveLevel()
    return next(level for level in LEVELS if LEVELS[level] <= max(effective, LEVELS["TRACE"]))


def set_levels(levels: Mapping[str, str | None]) -> None:
    """Set the level of each logger; with None it inherits its level again."""
    for name, level in levels.items():
        _logger(name).setLevel(logging.NOTSET if level is None else LEVELS[level])


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)
