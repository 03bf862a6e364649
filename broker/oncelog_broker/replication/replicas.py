"""All partitions that this broker hosts, kept in step with the cluster image.

The image decides: a partition that it gives us is opened (or created) and led; one that it takes away is deleted. The
request handlers ask here for the leader of a partition and get it, or the precise error why not.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

from oncelog_broker.log.config import LogConfig
from oncelog_broker.log.log_manager import LogManager
from oncelog_broker.metadata.image import ClusterImage, Topic
from oncelog_broker.replication.partition import Partition
from oncelog_protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)


class Replicas:
    """The partitions of one broker."""

    def __init__(
        self,
        broker_id: int,
        logs: LogManager,
        log_config: Callable[[Mapping[str, str]], LogConfig],
        image: ClusterImage,
    ) -> None:
        """`log_config` resolves a topic's overrides to all its settings; `image` is the empty one to start from."""
        self._broker_id = broker_id
        self._logs = logs
        self._log_config = log_config
        self._image = image
        self._leaders: dict[tuple[str, int], Partition] = {}
        self._leaders_by_id: dict[tuple[bytes, int], Partition] = {}
        self._offline: dict[tuple[str, int], str] = {}

    # --- asked by the request handlers

    def leader(self, topic: str, index: int) -> Partition:
        """The partition, if this broker leads it.

        Raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR.
        """
        partition = self._leaders.get((topic, index))
        if partition is None:
            raise self._why_not(self._image.topic(topic), index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return partition

    def leader_by_id(self, topic_id: bytes, index: int) -> Partition:
        """As `leader`, by topic id; UNKNOWN_TOPIC_ID where nobody has that id (T9)."""
        partition = self._leaders_by_id.get((topic_id, index))
        if partition is None:
            raise self._why_not(self._image.topic_by_id(topic_id), index, ErrorCode.UNKNOWN_TOPIC_ID)
        return partition

    def _why_not(self, topic: Topic | None, index: int, unknown_topic: ErrorCode) -> KafkaError:
        if topic is None:
            return KafkaError(unknown_topic)
        if index not in topic.partitions:
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic.name} has no partition {index}")
        if (topic.name, index) in self._offline:
            reason = self._offline[topic.name, index]
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic.name}-{index} is offline: {reason}")
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def partitions(self) -> Iterable[Partition]:
        """All that this broker leads."""
        return self._leaders.values()

    def high_watermarks(self) -> dict[tuple[str, int], int]:
        """For replication-offset-checkpoint."""
        return {key: partition.high_watermark for key, partition in self._leaders.items()}

    # --- told by the image

    def on_image(self, old: ClusterImage, new: ClusterImage) -> None:
        """Follow a new image: open, lead, reconfigure, delete."""
        self._image = new
        changes = new.topic_changes_since(old)
        for topic in changes.removed:
            for index in topic.partitions:
                self._remove(topic, index)
        for topic in changes.changed:
            for index, partition in topic.partitions.items():
                if partition.leader == self._broker_id:
                    self._lead(topic, index, partition.leader_epoch, partition.isr)
                elif (topic.name, index) in self._leaders:
                    self._forget(topic.name, index)
        if new.topic_configs is not old.topic_configs:
            self._reconfigure(old, new)

    def _lead(self, topic: Topic, index: int, leader_epoch: int, isr: tuple[int, ...]) -> None:
        key = (topic.name, index)
        partition = self._leaders.get(key)
        if partition is not None:
            partition.lead(leader_epoch, isr)
            return
        config = self._log_config(self._image.config_of_topic(topic.name))
        try:
            log = self._logs.get_or_create(topic.name, index, topic.topic_id, config)
            log.update_config(config)  # one that was there is opened with the defaults
        except (OSError, KafkaError) as error:
            logger.error("partition is offline", extra={"partition": f"{topic.name}-{index}", "reason": error})
            self._offline[key] = str(error)
            return
        partition = Partition(topic.name, topic.topic_id, index, log, leader_id=self._broker_id)
        partition.lead(leader_epoch, isr)
        self._leaders[key] = partition
        self._leaders_by_id[topic.topic_id, index] = partition
        self._offline.pop(key, None)

    def _forget(self, topic: str, index: int) -> Partition | None:
        partition = self._leaders.pop((topic, index), None)
        if partition is not None:
            self._leaders_by_id.pop((partition.topic_id, index), None)
            partition.resign()
        return partition

    def _remove(self, topic: Topic, index: int) -> None:
        hosted = self._forget(topic.name, index) is not None
        if hosted or self._offline.pop((topic.name, index), None) is not None:
            try:
                self._logs.delete(topic.name, index)
            except KafkaError as error:  # the next start sets it aside; the other changes of the image must go on
                logger.error("log not deleted", extra={"partition": f"{topic.name}-{index}", "reason": error})

    def _reconfigure(self, old: ClusterImage, new: ClusterImage) -> None:
        for name in old.topic_configs.keys() | new.topic_configs.keys():
            overrides = new.config_of_topic(name)
            topic = new.topic(name)
            if topic is None or overrides == old.config_of_topic(name):
                continue
            config = self._log_config(overrides)
            for index in topic.partitions:
                partition = self._leaders.get((name, index))
                if partition is not None:
                    partition.log.update_config(config)

    def reconfigure_all(self) -> None:
        """The broker's own settings have changed, which topics inherit."""
        for (name, _), partition in self._leaders.items():
            partition.log.update_config(self._log_config(self._image.config_of_topic(name)))

    def close(self) -> None:
        """Answer whoever waits; the logs are closed by their manager."""
        for partition in self._leaders.values():
            partition.resign()
