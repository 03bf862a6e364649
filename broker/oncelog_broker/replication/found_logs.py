"""Topics that are taken over from the logs in the data directories, since no metadata store knows them.

Their logs say nothing of their settings. Where those are known (Apache Kafka's own metadata lists the topic) the topic
keeps exactly these. Else it gets `retention.ms=-1` and `retention.bytes=-1` as its own: by the defaults, records that
settings had kept would be deleted within minutes. Internal topics always get what their coordinators need.
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
"""Producer ids up to here may be in use in logs that another cluster wrote: ours begin above, since an id that is given
out twice makes two producers one. Nobody has initialised that many producers."""
KEEP_ALL: Final = {"retention.ms": "-1", "retention.bytes": "-1"}
"""Settings of a topic whose own settings are not known: all records are kept."""
EPOCH_LEAP: Final = 1000
"""Added to the leader epochs of a cluster that had other members and is founded again: they may have led with higher
epochs than the logs here have. No epoch is given out twice if there were fewer elections than this."""
MAX_PARTITIONS: Final = 100_000
"""Partitions of a topic whose missing partitions are created: the name of a directory may have any number."""
NO_SETTINGS: Final[Mapping[str, str]] = {}

Needed = Callable[[str], Mapping[str, str]]
"""The settings that a topic of this name needs as its own: those of internal topics."""


def found_logs(
    logs: LogManager,
    directories: Iterable[str],
    disk: Disk,
    needed: Needed | None = None,
    *,
    is_refounded: bool = False,
) -> FoundLogs:
    """What the data directories hold, if this broker is the first of a cluster. `is_refounded`: of one that had other
    members. Raises OSError."""
    topics = found_topics(logs, directories, disk, needed)
    highest = highest_producer_id(logs) if topics else -1
    return FoundLogs(logs.cluster_id, topics, highest, EPOCH_LEAP if is_refounded else 0)


def found_topics(
    logs: LogManager, directories: Iterable[str], disk: Disk, needed: Needed | None = None
) -> tuple[FoundTopic, ...]:
    """The topics that have a log here, with the settings that they are to have. OSError."""
    known: dict[str, dict[str, str]] = {}
    for directory in directories:
        known |= read_topics(disk, directory)
    epochs: dict[str, dict[int, int]] = {}
    topic_ids: dict[str, bytes | None] = {}
    for topic, partition in logs.partitions():  # those that cannot be opened, too: they stay offline
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
    """Add missing partitions below the highest one: clients would wait for their leaders for ever."""
    if max(partitions) >= MAX_PARTITIONS:
        logger.error("a partition's number is too high to be one", extra={"topic": topic, "partition": max(partitions)})
        return
    gaps = [partition for partition in range(max(partitions)) if partition not in partitions]
    if gaps:
        logger.error(
            "no log of some partitions of a topic that is taken over: they begin empty",
            extra={"topic": topic, "partitions": ",".join(map(str, gaps))},
        )
        partitions.update(dict.fromkeys(gaps, -1))


def settings_of(topic: str, known: Mapping[str, str] | None, needed: Needed | None) -> dict[str, str]:
    """The settings of a topic that is taken over. `known`: those that it had, None where nobody knows."""
    of_its_own = NO_SETTINGS if needed is None else needed(topic)
    if known is None and not of_its_own:
        return dict(KEEP_ALL)
    return {**of_its_own, **valid_topic_overrides(topic, dict(known or NO_SETTINGS))}


def highest_producer_id(logs: LogManager) -> int:
    """Return the producer id above which the new cluster begins. Logs that were taken over before may have ids above
    the constant."""
    known = max((log.producers.state.highest_id(MAX_KNOWN_ID) for log in logs.logs()), default=-1)
    return max(ADOPTED_PRODUCER_IDS, known + UNKNOWN_IDS)
