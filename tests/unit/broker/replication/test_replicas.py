"""A broker's partitions follow the image, whatever fails on the way."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from oncelog_broker.metadata.image import ClusterImage, Partition, Topic
from oncelog_broker.replication.replicas import Replicas
from oncelog_protocol.errors import ErrorCode, KafkaError


class LogsThatCannotDelete:
    def get_or_create(self, topic: str, partition: int, topic_id: bytes, config: Any) -> Any:
        return SimpleNamespace(log_end_offset=0, update_config=lambda config: None)

    def delete(self, topic: str, partition: int) -> None:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "Permission denied")


def topic(name: str, number: int) -> Topic:
    return Topic(name, bytes([number]) * 16, {0: Partition((1,), (1,), leader=1, leader_epoch=0)})


def test_a_log_that_cannot_be_deleted_keeps_no_other_topic_from_being_served() -> None:
    logs: Any = LogsThatCannotDelete()
    replicas = Replicas(1, logs, lambda overrides: SimpleNamespace(), ClusterImage(""))  # type: ignore[arg-type, return-value]
    old = ClusterImage("").with_topic(topic("old", 1))
    replicas.on_image(ClusterImage(""), old)
    replicas.on_image(old, old.without_topic("old").with_topic(topic("new", 2)))
    assert replicas.leader("new", 0).topic == "new"
