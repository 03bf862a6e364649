"""Data directories of another origin (that Apache Kafka wrote, say): which topics a new cluster begins with."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from oncelog_broker.config.alter import valid_topic_overrides
from oncelog_broker.log.directories.kraft_metadata import read_topic_configs
from oncelog_broker.log.directories.log_manager import LogManager
from oncelog_broker.metadata.producer_ids import MAX_KNOWN_ID, UNKNOWN_IDS
from oncelog_broker.metadata.registration import FoundLogs, FoundTopic
from oncelog_broker.runtime.disk import Disk

logger = logging.getLogger(__name__)

MISSING_SHOWN: Final = 10
"""Numbers of missing partitions in a line of the log."""
ADOPTED_PRODUCER_IDS: Final = 2**40
"""Producer ids up to here may be in use in logs that another cluster wrote: ours begin above, since an id that is given
out twice makes two producers one. Nobody has initialised that many producers."""


def found_logs(logs: LogManager, directories: Iterable[str], disk: Disk) -> FoundLogs:
    """What those of another origin hold, if this broker is the first of a cluster. Raises OSError."""
    configs: dict[str, dict[str, str]] = {}
    for directory in directories:
        configs |= read_topic_configs(disk, directory)
    found: dict[str, dict[int, int]] = {}
    topic_ids: dict[str, bytes | None] = {}
    for log in logs.logs():
        found.setdefault(log.topic, {})[log.partition] = log.latest_epoch
        topic_ids[log.topic] = logs.topic_id(log.topic, log.partition)
    topics = tuple(
        FoundTopic(name, epochs, topic_ids[name], valid_topic_overrides(name, configs.get(name, {})))
        for name, epochs in found.items()
    )
    tell_holes({name: set(epochs) for name, epochs in found.items()})
    return FoundLogs(logs.cluster_id, topics, _highest_producer_id(logs) if topics else -1)


def tell_holes(partitions: Mapping[str, Collection[int]]) -> None:
    """Log which topics are taken over without some of their partitions: no client can use them so."""
    for name, numbers in sorted(partitions.items()):
        missing = [number for number in range(max(numbers, default=-1)) if number not in numbers]
        if missing:
            logger.error(
                "a topic is taken over without some of its partitions, and cannot be used: no log directory of this "
                "broker has them. A cluster is founded from the directories of one broker, which should have all",
                extra={"topic": name, "missing": " ".join(map(str, missing[:MISSING_SHOWN])), "count": len(missing)},
            )


def _highest_producer_id(logs: LogManager) -> int:
    """What the ids of the new cluster begin above. From the second time on that a directory is adopted, its logs know
    ids above the constant."""
    known = max((log.producers.state.highest_id(MAX_KNOWN_ID) for log in logs.logs()), default=-1)
    return max(ADOPTED_PRODUCER_IDS, known + UNKNOWN_IDS)
