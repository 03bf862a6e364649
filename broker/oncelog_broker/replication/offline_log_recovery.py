"""Logs whose disk failed come back without a restart: opened again from time to time, until that succeeds.

Only where nobody counts on them: the replica has left the ISR, and another one leads. What it held above its last fsync
is given up (`LogManager.begin_return`) and fetched again, so it does not matter what the failed disk has kept of it. A
replica that others count on, or the only one, stays offline until the operator starts the broker again: what it
acknowledged is nowhere else.

A log that could not be made is tried again in the same way, whoever leads: nothing of it was there. It may be made in
another data directory then (`log/directories/directory_choice.py`).

Nor may anybody come to count on it by what it has said before: so the controller is asked for a new leader epoch first
(`Replica.may_begin_again`). In Kafka, where only a restart brings a log back, the new broker epoch does that.
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
"""The wait before the first attempt to open an offline log; it doubles before each further attempt."""
MAX_REST_SECONDS: Final = 60.0
NAMES_IN_A_LINE: Final = 10
"""How many partitions one log message names."""
LOGS_PER_LOOK: Final = 100
"""How many logs one look tries to open."""


class OfflineLogRecovery:
    """Opens the offline logs of one broker again."""

    def __init__(
        self,
        replicas: Replicas,
        ask_for_new_epochs: Callable[[Collection[tuple[str, int]]], None],
        host: Host,
    ) -> None:
        """`ask_for_new_epochs` sends one request to the controller and returns; the new leader epochs come with the
        image."""
        self._replicas = replicas
        self._ask_for_new_epochs = ask_for_new_epochs
        self._clock = host.clock
        self._tasks = host.tasks
        self._resting: dict[tuple[str, int], tuple[float, float]] = {}
        """How long each rests before the next attempt, and until when: monotonic, in seconds."""

    def start(self) -> None:
        """From now on; ends with the broker's tasks."""
        self._tasks.every("logs that come back", LOOK_SECONDS, self.look)

    async def look(self) -> None:
        """Try those again that have rested."""
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
            logger.info("offline logs are opened or made again", extra={"count": len(opened), "partitions": names})
        if told:
            self._ask_for_new_epochs(told)
