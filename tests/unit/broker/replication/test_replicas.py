"""A broker's partitions follow the image, whatever fails on the way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from oncelog_broker.log.config import LogConfig
from oncelog_broker.log.log_manager import LogManager
from oncelog_broker.metadata.image import ClusterImage, Partition, Topic
from oncelog_broker.replication.replicas import Replicas
from oncelog_broker.runtime.clock import ManualClock
from oncelog_broker.runtime.disk import RealDisk
from oncelog_protocol.errors import ErrorCode, KafkaError


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LogManager]:
    """Real logs, of which none can be deleted."""

    def delete(topic: str, partition: int) -> None:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "Permission denied")

    manager = LogManager.open([tmp_path], node_id=1, cluster_id="c", disk=RealDisk(), clock=ManualClock())
    monkeypatch.setattr(manager, "delete", delete)
    yield manager
    manager.close()


def topic(name: str, number: int) -> Topic:
    return Topic(name, bytes([number]) * 16, {0: Partition((1,), (1,), leader=1, leader_epoch=0)})


def test_a_log_that_cannot_be_deleted_keeps_no_other_topic_from_being_served(logs: LogManager) -> None:
    replicas = Replicas(1, logs, lambda overrides: LogConfig(), ClusterImage(""))
    old = ClusterImage("").with_topic(topic("old", 1))
    replicas.on_image(ClusterImage(""), old)
    replicas.on_image(old, old.without_topic("old").with_topic(topic("new", 2)))
    assert replicas.leader("new", 0).topic == "new"
