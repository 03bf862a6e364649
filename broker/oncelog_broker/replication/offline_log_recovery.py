"""Reopens logs of this broker that went offline because of a disk failure, without a restart, with periodic attempts.

A log is reopened only if no other broker relies on it: the replica has left the ISR, another replica leads, and that
leader has just confirmed that it leads (`leader_check`). Records that were appended after the last fsync are discarded
(`LogManager.begin_return`) and fetched again, because the failed disk may have lost any of them. Some replicas stay
offline until the operator restarts the broker: a replica in the ISR, the only replica, and a replica whose leader does
not respond. The records that such a replica acknowledged may exist nowhere else.

If the creation of a log failed, it is also retried periodically, whichever broker leads the partition, because that log
never had records. A log that could not be created may be created in another data directory
(`log/directories/directory_choice.py`).

No leader may add the replica to the ISR because of a log end offset that the replica reported before the failure.
Before the log is reopened, this module therefore asks the controller for a new leader epoch
(`Replica.may_begin_again`). In Kafka only a restart reopens an offline log; the new broker epoch then has the same
effect as the new leader epoch here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from typing import Final

from oncelog_broker.replication.leader_check import AsksLeaders, Led
from oncelog_broker.replication.replicas import Replicas
from oncelog_broker.runtime.host import Host

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0
FIRST_REST_SECONDS: Final = 1.0
"""Seconds before the first attempt to reopen an offline log; the delay doubles before each further attempt."""
MAX_REST_SECONDS: Final = 60.0
NAMES_IN_A_LINE: Final = 10
"""The maximum number of partitions that one log line names."""
LOGS_PER_LOOK: Final = 100
"""The maximum number of logs that one check tries to reopen."""


class OfflineLogRecovery:
    """Reopens the offline logs of one broker."""

    def __init__(
        self,
        replicas: Replicas,
        ask_for_new_epochs: Callable[[Collection[tuple[str, int]]], None],
        leaders: AsksLeaders,
        host: Host,
    ) -> None:
        """`ask_for_new_epochs` sends one request to the controller and returns; the new leader epochs arrive with the
        cluster image.
        """
        self._replicas = replicas
        self._leaders = leaders
        self._ask_for_new_epochs = ask_for_new_epochs
        self._clock = host.clock
        self._tasks = host.tasks
        self._resting: dict[tuple[str, int], tuple[float, float]] = {}
        """Maps a partition whose log could not be reopened to a pair: the seconds before the next attempt, and the
        monotonic time of that attempt.
        """

    def start(self) -> None:
        """Check for offline logs periodically, until the broker's tasks are cancelled."""
        self._tasks.every("reopening of offline logs", LOOK_SECONDS, self.look)

    async def look(self) -> None:
        """Try to reopen the logs whose delay before the next attempt has passed."""
        now, before = self._clock.monotonic(), self._resting
        self._resting, tried = {}, dict[tuple[str, int], float]()
        self._replicas.fetch_no_failed()
        unmade = set(self._replicas.offline_and_never_made())
        for key in dict.fromkeys((*sorted(unmade), *self._replicas.offline_and_not_counted_on())):
            seconds, until = before.get(key, (FIRST_REST_SECONDS, now + FIRST_REST_SECONDS))
            self._resting[key] = seconds, until
            if until <= now and len(tried) < LOGS_PER_LOOK:
                tried[key] = seconds
                self._resting[key] = seconds, now + seconds
        confirmed = await self._confirmed(key for key in tried if key not in unmade)
        # the leader of the partition according to the cluster image
        not_counted_on = set(self._replicas.offline_and_not_counted_on())
        opened, told = [], []
        for key in tried:
            led = self._replicas.may_begin_again(*key)
            if key in unmade or (key in not_counted_on and led in confirmed):
                opened.append(key)
            elif led is None:
                told.append(key)
        for key in opened:
            self._replicas.open_again(*key)
            seconds = min(2 * tried[key], MAX_REST_SECONDS)
            self._resting[key] = seconds, now + seconds
        if opened:
            names = " ".join(f"{topic}-{index}" for topic, index in opened[:NAMES_IN_A_LINE])
            logger.info("reopening offline logs", extra={"count": len(opened), "partitions": names})
        if told:
            self._ask_for_new_epochs(told)

    async def _confirmed(self, keys: Iterable[tuple[str, int]]) -> set[Led]:
        """Return which of these partitions' leaders confirm that they lead, so that the logs may be reopened."""
        led = [found for key in keys if (found := self._replicas.may_begin_again(*key)) is not None]
        return await self._leaders.confirmed(led) if led else set()
