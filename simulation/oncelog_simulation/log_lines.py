"""Adds the log lines of brokers and clients to the timeline; an unexpected error counts as a violation.

Errors of disks, the network, the store and the protocol are expected; any other error that is logged with a stack
trace, or that the event loop reports, is a bug.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from oncelog.errors import KafkaError
from oncelog_broker.metadata.stores.store import MetadataError
from oncelog_simulation.world import World

LOGGERS: Final = ("oncelog_broker", "oncelog", "asyncio")
FORESEEN: Final = (OSError, KafkaError, MetadataError, TimeoutError)
_OWN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""Attributes that every log record has; all other attributes are details."""


class _Noting(logging.Handler):
    def __init__(self, world: World) -> None:
        super().__init__(logging.WARNING)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        world = self._world
        actor = world.loop.current.name.partition(".")[0]
        details = {name: str(value) for name, value in vars(record).items() if name not in _OWN}
        world.note(actor, f"{record.levelname} {record.getMessage()}", **_safe(details))
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, FORESEEN) and actor not in world.outsiders:
            last = traceback.extract_tb(error.__traceback__)[-1:]
            where = "".join(f" in {frame.filename.rpartition('/')[2]}:{frame.name}" for frame in last)
            world.violate("errors", f"{actor}: {record.getMessage()}: {type(error).__name__}: {error}{where}")


def _safe(details: dict[str, str]) -> dict[str, Any]:
    return {("what_" if name == "what" else name): value for name, value in details.items()}


@contextmanager
def log_lines_noted(world: World) -> Iterator[None]:
    """Add all log lines to the timeline, and suppress their output, until the end of the `with` statement."""
    handler = _Noting(world)
    before = [(logging.getLogger(name), logging.getLogger(name).propagate) for name in LOGGERS]
    for logger, _ in before:
        logger.addHandler(handler)
        logger.propagate = False
    try:
        yield
    finally:
        for logger, propagate in before:
            logger.removeHandler(handler)
            logger.propagate = propagate
