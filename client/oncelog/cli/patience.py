"""Reports once why a command makes no progress, because users otherwise do not see the retries that the client logs.

A short retry, for example after a leader change, is not worth a message, so the reason is reported only when retries
have lasted some seconds.
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
"""Seconds of retries before the reason is reported."""
TOO_FEW: Final = "Are brokers down? (oncelog topics describe TOPIC shows the in-sync replicas)"
WHAT_TO_DO: Final = {
    ErrorCode.NOT_ENOUGH_REPLICAS: TOO_FEW,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: TOO_FEW,
    ErrorCode.LEADER_NOT_AVAILABLE: "Are brokers down? (oncelog topics describe TOPIC shows the leaders)",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "Are brokers down? (oncelog topics describe --internal shows the "
    "in-sync replicas)",
}


class Patience(logging.Handler):
    """Watches the log of the client for retries. Each class of error is reported once."""

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float] = monotonic) -> None:
        super().__init__(logging.INFO)
        self._say = say
        self._clock = clock
        self._since: dict[ErrorCode, float | None] = {}
        """Error -> time (monotonic seconds) at which the error was first seen; None means that the error has been
        reported.
        """

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
    """Context manager that reports long retries while a command runs."""
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
