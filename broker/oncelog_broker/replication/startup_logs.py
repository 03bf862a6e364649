"""Finds the topics that a new cluster creates from the logs in its data directories, because no metadata store has
these topics.

A log does not contain the settings of its topic. If Apache Kafka's own metadata contains the topic, the topic keeps its
settings from that metadata. A topic without known settings gets `retention.ms=-1` and `retention.bytes=-1`, since the
default retention would delete its records within minutes. Internal topics always get the settings that their
coordinators need.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from oncelog_broker.config.alter import valid_topic_overrides
from oncelog_broker.log.directories.kraft_metadata import read_topics
from oncelog_broker.log.directories.log_manager import LogManager
from oncelog_broker.metadata.membership.founding import FoundLogs, FoundTopic
from oncelog_broker.metadata.membership.producer_ids import MAX_KNOWN_ID, UNKNOWN_IDS
from oncelog_broker.runtime.disk import Disk

logger = logging.getLogger(__name__)

ADOPTED_PRODUCER_IDS: Final = 2**40
"""Producer ids up to this number may occur in logs of another cluster. New producer ids start above this number,
because a log could not distinguish the sequences of two producers with the same id. No cluster has initialised so many
producers.
"""
KEEP_ALL: Final = {"retention.ms": "-1", "retention.bytes": "-1"}
"""Settings of a topic that is created from its logs, and whose own settings are unknown. With these settings all
records are kept.
"""
EPOCH_LEAP: Final = 1000
"""If a cluster that had other members is founded again, this number is added to the leader epochs of the adopted logs,
because the other members may have led in later epochs. No epoch is used twice if the number of later elections was
below this number.
"""
MAX_PARTITIONS: Final = 100_000
"""If a directory name has a partition number of at least this value, the missing partitions of its topic are not
created, because the number may be an error.
"""
NO_SETTINGS: Final[Mapping[str, str]] = {}

Needed = Callable[[str], Mapping[str, str]]
"""Type of a function that returns the settings that a topic with a given name must have; the result is empty except for
internal topics.
"""


def found_logs(
    logs: LogManager,
    directories: Iterable[str],
    disk: Disk,
    needed: Needed | None = None,
    *,
    is_refounded: bool = False,
) -> FoundLogs:
    """Return the logs in the data directories, for the broker that founds a cluster. `is_refounded` means that the
    cluster had other members before. Raises OSError.
    """
    topics = found_topics(logs, directories, disk, needed)
    highest = highest_producer_id(logs) if topics else -1
    return FoundLogs(logs.cluster_id, topics, highest, EPOCH_LEAP if is_refounded else 0)


def found_topics(
    logs: LogManager, directories: Iterable[str], disk: Disk, needed: Needed | None = None
) -> tuple[FoundTopic, ...]:
    """Return the topics that have a log on this broker, with the settings that the new cluster will give them. Raises
    OSError.
    """
    known: dict[str, dict[str, str]] = {}
    for directory in directories:
        known |= read_topics(disk, directory)
    epochs: dict[str, dict[int, int]] = {}
    topic_ids: dict[str, bytes | None] = {}
    for topic, partition in logs.partitions():  # the list includes logs that cannot be opened, which stay offline
        epochs.setdefault(topic, {})[partition] = -1
        topic_ids[topic] = topic_ids.get(topic) or logs.topic_id(topic, partition)
    for log in logs.logs():
        epochs[log.topic][log.partition] = log.latest_epoch
    for topic, partitions in epochs.items():
        _fill_gaps(topic, partitions)
    return tuple(
        FoundTopic(topic, partitions, topic_ids[topic], settings_of(topic, known.get(topic), needed))
        for topic, partitions in epochs.items()
    )


def _fill_gaps(topic: str, partitions: dict[int, int]) -> None:
    """Add the missing partitions below the highest partition number, because clients would wait forever for partitions
    without a leader.
    """
    if max(partitions) >= MAX_PARTITIONS:
        logger.error(
            "a partition number is too high: missing partitions of the topic are not created",
            extra={"topic": topic, "partition": max(partitions)},
        )
        return
    gaps = [partition for partition in range(max(partitions)) if partition not in partitions]
    if gaps:
        logger.error(
            "the logs of some partitions of an adopted topic are missing: they start empty",
            extra={"topic": topic, "partitions": ",".join(map(str, gaps))},
        )
        partitions.update(dict.fromkeys(gaps, -1))


def settings_of(topic: str, known: Mapping[str, str] | None, needed: Needed | None) -> dict[str, str]:
    """Return the settings of a topic that is created from its logs. `known` are the topic's previous settings; None if
    they are unknown.
    """
    of_its_own = NO_SETTINGS if needed is None else needed(topic)
    if known is None and not of_its_own:
        return dict(KEEP_ALL)
    return {**of_its_own, **valid_topic_overrides(topic, dict(known or NO_SETTINGS))}


def highest_producer_id(logs: LogManager) -> int:
    """Return the producer id above which the new cluster allocates producer ids. Logs that were adopted before may
    contain ids above ADOPTED_PRODUCER_IDS.
    """
    known = max((log.producers.state.highest_id(MAX_KNOWN_ID) for log in logs.logs()), default=-1)
    return max(ADOPTED_PRODUCER_IDS, known + UNKNOWN_IDS)
