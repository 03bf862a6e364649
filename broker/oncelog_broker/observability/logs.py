"""Structured logging: one line for each event, as `key=value` or JSON, on standard error.

Call sites use the standard library: `logger.warning("connection refused", extra={"client": host})`. The message is a
constant phrase, and values are passed in `extra`, so that lines can be counted and searched. Logging never blocks
(log_writer.py).
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any, Final

from oncelog.escaping import visible, visible_json
from oncelog_broker.observability.log_writer import QueuedHandler

_STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

LEVELS: Final = ("debug", "info", "warning", "error")
FORMATS: Final = ("text", "json")


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return {key: value for key, value in vars(record).items() if key not in _STANDARD}


def _timestamp(record: logging.LogRecord) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"


class TextFormatter(logging.Formatter):
    """Formats lines like `2026-01-01T00:00:00.000Z warning connection refused client=127.0.0.1 reason="too many"`."""

    def format(self, record: logging.LogRecord) -> str:
        parts = [_timestamp(record), record.levelname.lower(), visible(record.getMessage())]
        for key, value in _fields(record).items():
            text = str(value)
            # A name that a client chose may contain line breaks, which would look like separate lines of the broker's
            # log.
            is_plain = text.isprintable() and not (" " in text or '"' in text) and text
            parts.append(f"{key}={text if is_plain else visible_json(json.dumps(text))}")
        line = " ".join(parts)
        if record.exc_info:
            line += "\n" + visible(self.formatException(record.exc_info), "\n\t")
        return line


class JsonFormatter(logging.Formatter):
    """Formats each log record as one line with a JSON object."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": _timestamp(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        entry.update(_fields(record))
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return visible_json(json.dumps(entry, default=str))


def flush_logs() -> None:
    """Wait briefly until all logged lines are written, so that they appear before text that the caller prints next."""
    for handler in logging.getLogger().handlers:
        handler.flush()


class OfWorker(logging.Filter):
    """Adds the number of this worker to each log record that does not already name a worker."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    def filter(self, record: logging.LogRecord) -> bool:
        record.__dict__.setdefault("worker", self._number)
        return True


def set_up_logging(level: str, log_format: str, worker: int | None = None) -> None:
    """Log records of `level` and above to standard error in `log_format` (see LEVELS, FORMATS). `worker`: the number of
    this process among the workers of one supervisor, whose standard error they share; each line has this number as a
    field.
    """
    handler = QueuedHandler(sys.stderr.fileno(), JsonFormatter() if log_format == "json" else TextFormatter())
    if worker is not None:
        handler.addFilter(OfWorker(worker))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.getLogger("asyncio").setLevel(logging.WARNING)
