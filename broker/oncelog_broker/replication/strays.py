"""Logs that belong to nothing: of topics that are no more (a deletion was cut short), or of an older one of that name.

Or the metadata store is older than the logs: restored from a backup, or without the end of its write-ahead log. It
cannot know, so nothing is deleted, and an operator is told what to look for.
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
    """At the start of a broker. `store` names the metadata store; `keeps_left_over`: it does not know what this broker
    had, since it is new to it, or older than its logs."""
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
        elif keeps_left_over and broker_id not in topic.partitions[index].replicas:
            # It may be all that there is. Where a reassignment took it away, `replicas` deletes it.
            reason = "others hold it, by a metadata store that is new to this broker or older than its logs"
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
