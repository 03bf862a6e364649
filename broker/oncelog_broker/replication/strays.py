"""Logs that belong to nothing: of topics that are no more (a deletion was cut short), or of an older one of that name.

Or the metadata store is older than the logs: restored from a backup, or without the end of its write-ahead log. It
cannot know, so nothing is deleted, and an operator is told what to look for.
"""

from __future__ import annotations

import logging

from oncelog_broker.log.checkpoints import TopicPartition
from oncelog_broker.log.directories.log_manager import LogManager
from oncelog_broker.metadata.image import ClusterImage

logger = logging.getLogger(__name__)


def set_strays_aside(logs: LogManager, image: ClusterImage, broker_id: int, store: str, *, is_new: bool) -> None:
    """At the start of a broker. `store` names the metadata store; `is_new`: this broker was never in the cluster."""
    unknown = 0
    reasons: dict[TopicPartition, str] = {}
    for name, index in logs.partitions():
        topic = image.topic(name)
        topic_id = logs.topic_id(name, index)
        if name in image.unreadable_topics:
            continue  # what it is, and whether this is its log, nobody knows yet
        if topic is None:
            reason = "no such topic"
            unknown += 1
        elif index not in topic.partitions:
            reason = f"the topic has {len(topic.partitions)} partitions"
            unknown += 1
        elif topic_id not in (None, topic.topic_id):
            reason = "the topic is a newer one of the same name"
        elif is_new and broker_id not in topic.partitions[index].replicas:
            # Of another origin, then. Where a reassignment took it away, `replicas` deletes it.
            reason = "others hold it, and this broker was never in the cluster before"
        else:
            continue
        reasons[name, index] = reason
    logs.forget_offsets(reasons)
    for (name, index), reason in reasons.items():
        moved = logs.set_aside(name, index)
        extra = {"partition": f"{name}-{index}", "reason": reason, "directory": moved}
        logger.warning("log of no topic set aside", extra=extra)
    if unknown:
        logger.error(
            "logs that the metadata store does not know; if their topics were not deleted, the store lost its last "
            "writes: stop the broker, restore the file with its -wal file, and rename the directories back",
            extra={"count": unknown, "metadata": store},
        )
