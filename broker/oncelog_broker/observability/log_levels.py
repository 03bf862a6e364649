"""Reads and changes the levels of this process's loggers while the broker runs (KIP-412).

A level remains in force until the process ends, as in Kafka. Loggers have the names of Python modules
(`oncelog_broker.log`); `root` is the logger from which all others inherit.
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
"""Kafka's log levels, the most severe first, with Python's numbers for them."""


def logger_names() -> list[str]:
    """Return the sorted names of all loggers that exist so far, including the root logger."""
    made = logging.root.manager.loggerDict
    return sorted([ROOT, *(name for name, logger in list(made.items()) if isinstance(logger, logging.Logger))])


def level_of(name: str) -> str:
    """Return the effective level of a logger, which is one of LEVELS: the logger writes records of this level and of
    more severe levels.
    """
    effective = _logger(name).getEffectiveLevel()
    return next(level for level in LEVELS if LEVELS[level] <= max(effective, LEVELS["TRACE"]))


def set_levels(levels: Mapping[str, str | None]) -> None:
    """Set the level of each logger; None makes a logger inherit its level again."""
    for name, level in levels.items():
        _logger(name).setLevel(logging.NOTSET if level is None else LEVELS[level])


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)
