"""Reopens logs of this broker that went offline with a disk failure, without a restart; tries from time to time.

Only if no other broker relies on them: the replica has left the ISR, and another replica leads. Records above the last
fsync are discarded (`LogManager.begin_return`) and fetched again, so it does not matter which of them the failed disk
kept. A replica in the ISR, or the only one, stays offline until the operator restarts the broker: the records it
acknowledged exist nowhere else.

A log that could not be created is retried in the same way, whichever broker leads, since it never had records. It may
be created in another data directory (`log/directories/directory_choice.py`).

No leader may add the replica to the ISR because of a log end offset that the replica reported before the failure. So
the controller is asked for a new leader epoch first (`Replica.may_begin_again`). In Kafka only a restart brings a log
back, and the new broker epoch has this effect.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Final

from oncelog_broker.replication.replicas import Replicas
from oncelog_broker.runtime.host import Host

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0
FIRST_REST_SECONDS: Final = 1.0
"""Seconds before the first attempt to reopen an offline log; doubled before each further attempt."""
MAX_REST_SECONDS: Final = 60.0
NAMES_IN_A_LINE: Final = 10
"""Partitions named in one log line."""
LOGS_PER_LOOK: Final = 100
"""Logs that one check tries to reopen."""


class OfflineLogRecovery:
    """Reopens the offline logs of one broker."""

    def __init__(
        self,
        replicas: Replicas,
        ask_for_new_epochs: Callable[[Collection[tuple[str, int]]], None],
        host: Host,
    ) -> None:
        """`ask_for_new_epochs` sends one request to the controller and returns; the new leader epochs arrive with the
        image."""
        self._replicas = replicas
        self._ask_for_new_epochs = ask_for_new_epochs
        self._clock = host.clock
        self._tasks = host.tasks
        self._resting: dict[tuple[str, int], tuple[float, float]] = {}
        """Partition -> (seconds before the next attempt, monotonic time of that attempt), after failed attempts."""

    def start(self) -> None:
        """Check from time to time, until the broker's tasks end."""
        self._tasks.every("reopening of offline logs", LOOK_SECONDS, self.look)

    async def look(self) -> None:
        """Try to reopen the logs whose back-off is over."""
        now, before, tried = self._clock.monotonic(), self._resting, 0
        self._resting = {}
        told: list[tuple[str, int]] = []
        opened: list[str] = []
        self._replicas.fetch_no_failed()
        unmade = set(self._replicas.offline_and_never_made())
        for key in dict.fromkeys((*unmade, *self._replicas.offline_and_not_counted_on())):
            seconds, until = before.get(key, (FIRST_REST_SECONDS, now + FIRST_REST_SECONDS))
            if until <= now and tried < LOGS_PER_LOOK:
                tried += 1
                if key in unmade or self._replicas.may_begin_again(*key):
                    opened.append(f"{key[0]}-{key[1]}")
                    self._replicas.open_again(*key)
                    seconds = min(2 * seconds, MAX_REST_SECONDS)
                else:
                    told.append(key)
                until = now + seconds
            self._resting[key] = seconds, until
        if opened:
            names = " ".join(opened[:NAMES_IN_A_LINE])
            logger.info("reopening offline logs", extra={"count": len(opened), "partitions": names})
        if told:
            self._ask_for_new_epochs(told)
