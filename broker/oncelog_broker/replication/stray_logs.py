"""Renames stray logs at startup: logs of a topic that was deleted (if the deletion was interrupted), or re-created with
another id.

A log may also seem stray because the metadata store is older than the logs: the store was restored from a backup, or
has lost the end of its write-ahead log. The broker cannot distinguish a deleted topic from an older store, so it
deletes no records, and its log line tells the operator what to check.
"""

from __future__ import annotations

import logging

from oncelog_broker.log.checkpoints import TopicPartition
from oncelog_broker.log.directories.log_manager import LogManager
from oncelog_broker.metadata.model.image import ClusterImage

logger = logging.getLogger(__name__)


def set_strays_aside(
    logs: LogManager, image: ClusterImage, broker_id: int, store: str, *, keeps_left_over: bool
) -> None:
    """Rename the stray logs of a starting broker. `store` describes the metadata store in messages. `keeps_left_over`
    is True if the store is new, or older than the logs, and therefore lacks earlier assignments of partitions to this
    broker.
    """
    unknown = 0
    reasons: dict[TopicPartition, str] = {}
    for name, index in logs.partitions():
        topic = image.topic(name)
        topic_id = logs.topic_id(name, index)
        if name in image.unreadable_topics:
            continue  # keep the log, because unreadable metadata does not show whether this log is stray
        if topic is None:
            reason = "no such topic"
            unknown += 1
        elif index not in topic.partitions:
            reason = f"the topic has {len(topic.partitions)} partitions"
            unknown += 1
        elif topic_id not in (None, topic.topic_id):
            reason = "the topic is a newer one of the same name"
        elif keeps_left_over and broker_id not in topic.partitions[index].replicas:
            # The log may be the only copy of its records. If a reassignment removed the replica, `Replicas` deletes the
            # log later.
            reason = "assigned to other brokers, by a metadata store that is new to this broker or older than its logs"
        else:
            continue
        reasons[name, index] = reason
    logs.forget_offsets(reasons)
    for (name, index), reason in reasons.items():
        moved = logs.set_aside(name, index)
        extra = {"partition": f"{name}-{index}", "reason": reason, "directory": moved}
        logger.warning("stray log: directory renamed", extra=extra)
    if unknown:
        logger.error(
            "the metadata store does not contain the topics of these logs. If the topics were not deleted, the "
            "store lost its last writes: stop the broker, restore the store's file with its -wal file, and "
            "rename the directories back",
            extra={"count": unknown, "metadata": store},
        )
