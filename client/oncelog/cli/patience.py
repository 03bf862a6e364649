"""Says once why a command does not come on: what the client tries again, it logs, and else nobody sees that.

A leader that moves is nothing to talk about. So the reason is told when the same is tried again some seconds later.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Final

from oncelog.cli.output import tell
from oncelog.errors import ErrorCode, KafkaError

PATIENCE_SECONDS: Final = 2.0
"""How long the same may go wrong again and again before it is said."""
TOO_FEW: Final = "Are brokers down? (oncelog topics describe TOPIC shows who is in sync)"
WHAT_TO_DO: Final = {
    ErrorCode.NOT_ENOUGH_REPLICAS: TOO_FEW,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: TOO_FEW,
    ErrorCode.LEADER_NOT_AVAILABLE: "Are brokers down? (oncelog topics describe TOPIC shows who leads)",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "Are brokers down? (oncelog topics describe --internal shows who is in sync)",
}


class Patience(logging.Handler):
    """Hears what the client logs. Each kind of error is told once."""

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float] = monotonic) -> None:
        super().__init__(logging.INFO)
        self._say = say
        self._clock = clock
        self._since: dict[ErrorCode, float | None] = {}
        """When each error was first seen; None: it was told."""

    def emit(self, record: logging.LogRecord) -> None:
        arguments = record.args if isinstance(record.args, tuple) else ()
        error = next((each for each in arguments if isinstance(each, KafkaError)), None)
        if error is None:
            return
        first = self._since.setdefault(error.code, self._clock())
        if first is not None and self._clock() - first >= PATIENCE_SECONDS:
            self._since[error.code] = None
            self._say(f"still trying: {record.getMessage()}. {WHAT_TO_DO.get(error.code, '')}".rstrip())


@contextmanager
def patient() -> Iterator[None]:
    """While a command runs that talks to brokers."""
    logger = logging.getLogger("oncelog")
    handler = Patience(lambda text: tell(f"oncelog: {text}"))
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(min(logger.getEffectiveLevel(), logging.INFO))
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
