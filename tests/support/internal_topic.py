"""An internal topic of one broker for coordinator tests, with real logs in a temporary directory and a manual clock.
The cluster image decides which broker leads a partition of the topic.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.hosts import host_of

from oncelog_broker.log.config import LogConfig
from oncelog_broker.log.partition_log import PartitionLog
from oncelog_broker.metadata.model import image as images
from oncelog_broker.metadata.model.image import ClusterImage, Topic
from oncelog_broker.replication.partition import Partition
from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.runtime.disk import Disk, RealDisk
from oncelog_broker.runtime.tasks import Tasks
from oncelog_protocol.errors import ErrorCode, KafkaError

TOPIC = "__consumer_offsets"
TOPIC_ID = bytes(range(16))


class InternalTopic:
    """Replaces Replicas for the partitions of an internal topic: `lead` and `resign` change the image.

    The object also serves as `Deadlines`: it only stores the timers, and the test advances the clock and fires them.
    """

    def __init__(self, directory: Path, partitions: int = 1, disk: Disk | None = None, topic: str = TOPIC) -> None:
        self.directory = directory
        self.topic = topic
        self.disk = disk or RealDisk()
        self.clock = ManualClock()
        self.tasks = Tasks()
        self.host = host_of(self.clock, self.tasks, deadlines=self)
        self.config = LogConfig(cleanup_policy=frozenset({"compact"}))
        self.logs: dict[int, PartitionLog] = {}
        self.led: dict[int, Partition] = {}
        self.count = partitions
        self.epoch = 0
        self.replicas = (1,)
        """The replicas of the partitions; only the leader is in sync."""
        self.image = ClusterImage("")
        self.may_lead: Callable[[], bool] | None = None
        self.wake_ups: list[tuple[float, Callable[[], None]]] = []

    def lead(self, *indexes: int) -> ClusterImage:
        self.epoch += 1
        for index in indexes or range(self.count):
            log = self.logs.get(index)
            if log is None:
                log = self.logs[index] = PartitionLog.open(
                    self.directory / f"{self.topic}-{index}",
                    topic=self.topic,
                    partition=index,
                    config=self.config,
                    disk=self.disk,
                    clock=self.clock,
                )
            if index not in self.led:
                self.led[index] = Partition(
                    self.topic,
                    TOPIC_ID,
                    index,
                    log,
                    broker_id=1,
                    may_lead=lambda: self.may_lead is None or self.may_lead(),
                )
            self.led[index].lead(self.epoch, (1,), self.replicas)
        return self._publish()

    def resign(self, *indexes: int) -> ClusterImage:
        for index in indexes or range(self.count):
            self.led.pop(index).resign()
        return self._publish()

    def _publish(self) -> ClusterImage:
        partition = images.PartitionState((1,), (1,), 1, self.epoch, self.epoch)
        self.image = self.image.with_topic(Topic(self.topic, TOPIC_ID, dict.fromkeys(range(self.count), partition)))
        return self.image

    def led_partition(self, topic: str, index: int) -> Partition | None:
        return self.led.get(index) if topic == self.topic else None

    def leader(self, topic: str, index: int) -> Partition:
        if topic != self.topic or index not in self.led:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self.led[index]

    led_by_name = leader

    @property
    def deadlines(self) -> Any:
        return self

    def after(self, seconds: float, callback: Callable[[], None]) -> None:
        self.wake_ups.append((self.clock.monotonic() + seconds, callback))

    def unless_done(self, answer: Any, seconds: float, callback: Callable[[], None]) -> None:
        self.after(seconds, callback)

    def advance(self, seconds: float) -> None:
        """Advance the clock and fire due callbacks in order."""
        end = self.clock.monotonic() + seconds
        while True:
            due = sorted((entry for entry in self.wake_ups if entry[0] <= end), key=lambda entry: entry[0])
            if not due:
                break
            self.wake_ups.remove(due[0])
            self._move_to(due[0][0])
            due[0][1]()
        self._move_to(end)

    def _move_to(self, time: float) -> None:
        missing = time - self.clock.monotonic()
        if missing > 0:
            self.clock.advance_ms(int(missing * 1000 + 0.5))

    def close(self) -> None:
        for log in self.logs.values():
            log.abandon()
