"""The topology of a streams group: its subtopologies with the topics that they read and write. Pure.

The topology comes from the first member of a group. A group keeps its topology until the group is deleted: as in Kafka
4.3, members with another topology are refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from oncelog_broker.coordinator.group.held_bytes import PROTOCOL_OVERHEAD, TOPIC_OVERHEAD
from oncelog_broker.coordinator.group.streams_records import StreamsTopologyRecord
from oncelog_protocol.coordinator_records.streams_groups import StreamsGroupTopologyValue, TopicConfig, TopicInfo
from oncelog_protocol.errors import ErrorCode, KafkaError
from oncelog_protocol.light_classes import NamedTuple
from oncelog_protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from oncelog_protocol.messages.streams_group_heartbeat import TopicInfo as RequestedTopic

Requested = StreamsGroupHeartbeatRequest.Topology
Subtopology = StreamsGroupTopologyValue.Subtopology

MAX_ENTRIES: Final = 2_000
"""Maximum number of entries of one topology: topics, settings of topics and co-partitioned topics. A heartbeat visits
all entries after a change of topics, which takes a few milliseconds.
"""


class StreamsTopology(NamedTuple):
    """A topology. `sources` maps the topics that tasks read to the ids of their subtopologies. `required` has all
    topics that must exist before tasks are assigned. `held_bytes` is the estimated memory of the topology in bytes.
    """

    epoch: int
    subtopologies: Mapping[str, Subtopology]
    sources: Mapping[str, str]
    required: frozenset[str]
    held_bytes: int

    @classmethod
    def of(cls, value: StreamsGroupTopologyValue) -> StreamsTopology:
        """Return the topology that a record contains. Two topologies are equal even if their subtopologies, or the
        topics of a co-partition group, are in different orders.
        """
        subtopologies = {each.subtopology_id: _ordered(each) for each in value.subtopologies}
        ordered = {subtopology_id: subtopologies[subtopology_id] for subtopology_id in sorted(subtopologies)}
        sources = {topic: subtopology_id for subtopology_id, each in ordered.items() for topic in source_topics(each)}
        changelogs = (topic.name for each in ordered.values() for topic in each.state_changelog_topics)
        return cls(value.epoch, ordered, sources, frozenset((*sources, *changelogs)), _held_bytes(ordered.values()))

    def record(self, group_id: str) -> StreamsTopologyRecord:
        value = StreamsGroupTopologyValue(epoch=self.epoch, subtopologies=list(self.subtopologies.values()))
        return StreamsTopologyRecord(group_id, value)


def _ordered(subtopology: Subtopology) -> Subtopology:
    groups = [
        replace(
            group,
            source_topics=sorted(group.source_topics),
            repartition_source_topics=sorted(group.repartition_source_topics),
        )
        for group in subtopology.copartition_groups
    ]
    groups.sort(key=lambda group: (group.source_topics, group.repartition_source_topics))
    return replace(subtopology, copartition_groups=groups)


def source_topics(subtopology: Subtopology | Requested.Subtopology) -> list[str]:
    """Return the topics that the tasks of a subtopology read."""
    repartition = (topic.name for topic in subtopology.repartition_source_topics)
    return sorted({*subtopology.source_topics, *repartition})


def named_topics(topology: Requested) -> list[str]:
    """Return all topics of a requested topology, each topic once, in the order of the request."""
    names: dict[str, None] = {}
    for each in topology.subtopologies:
        names |= dict.fromkeys(each.source_topics)
        names |= dict.fromkeys(each.repartition_sink_topics)
        names |= dict.fromkeys(topic.name for topic in each.repartition_source_topics)
        names |= dict.fromkeys(topic.name for topic in each.state_changelog_topics)
    return list(names)


def requested(topology: Requested) -> StreamsTopology:
    """Return the topology of a request. The caller must have called `check_topology` before."""
    value = StreamsGroupTopologyValue(
        epoch=topology.epoch,
        subtopologies=[
            Subtopology(
                subtopology_id=each.subtopology_id,
                source_topics=each.source_topics,
                source_topic_regex=[],
                state_changelog_topics=[_topic(topic) for topic in each.state_changelog_topics],
                repartition_sink_topics=each.repartition_sink_topics,
                repartition_source_topics=[_topic(topic) for topic in each.repartition_source_topics],
                copartition_groups=[
                    Subtopology.CopartitionGroup(
                        source_topics=group.source_topics,
                        source_topic_regex=[],
                        repartition_source_topics=group.repartition_source_topics,
                    )
                    for group in each.copartition_groups
                ],
            )
            for each in topology.subtopologies
        ],
    )
    return StreamsTopology.of(value)


def _topic(topic: RequestedTopic) -> TopicInfo:
    return TopicInfo(
        name=topic.name,
        partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        topic_configs=[TopicConfig(key=config.key, value=config.value) for config in topic.topic_configs],
    )


def check_topology(topology: Requested) -> None:
    """Check a requested topology. Raises KafkaError INVALID_REQUEST for features that Kafka 4.3 does not support
    either. Raises STREAMS_INVALID_TOPOLOGY for a topology that is too large, or for which no suitable topics can exist.
    """
    if topology.epoch < 0:
        raise _invalid(f"The epoch of the topology is {topology.epoch}, but must not be negative.")
    entries, ids, read = 0, set[str](), set[str]()
    for each in topology.subtopologies:
        if each.source_topic_regex or any(group.source_topic_regex for group in each.copartition_groups):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Regular expressions for source topics are not supported yet.")
        entries += _entries(each)
        if entries > MAX_ENTRIES:
            raise _invalid(f"The topology has more than {MAX_ENTRIES} topics, settings and co-partitioned topics.")
        if each.subtopology_id in ids:
            raise _invalid(f"Subtopology {each.subtopology_id} is named twice.")
        ids.add(each.subtopology_id)
        _check_subtopology(each)
        for topic in source_topics(each):
            if topic in read:  # members of both subtopologies would commit offsets of the topic's partitions
                raise _invalid(f"Topic {topic} is a source of two subtopologies.")
            read.add(topic)
    _check_partition_counts(topology)


def _entries(subtopology: Requested.Subtopology) -> int:
    internal = (*subtopology.state_changelog_topics, *subtopology.repartition_source_topics)
    groups = subtopology.copartition_groups
    return (
        1
        + len(subtopology.source_topics)
        + len(subtopology.repartition_sink_topics)
        + sum(1 + len(topic.topic_configs) for topic in internal)
        + sum(1 + len(group.source_topics) + len(group.repartition_source_topics) for group in groups)
    )


def _check_subtopology(subtopology: Requested.Subtopology) -> None:
    where = f"Subtopology {subtopology.subtopology_id}"
    if not subtopology.source_topics and not subtopology.repartition_source_topics:
        raise _invalid(f"{where} has no source topics.")
    for topic in subtopology.state_changelog_topics:
        if topic.partitions != 0:
            raise _invalid(
                f"Changelog topic {topic.name} must have an undefined partition count, but it is set to "
                f"{topic.partitions}."
            )
    for topic in (*subtopology.state_changelog_topics, *subtopology.repartition_source_topics):
        if topic.partitions < 0 or topic.replication_factor < -1:
            raise _invalid(f"Topic {topic.name} of {where} has a negative number of partitions or replicas.")
    for group in subtopology.copartition_groups:
        indexes = (
            (group.source_topics, len(subtopology.source_topics)),
            (group.repartition_source_topics, len(subtopology.repartition_source_topics)),
        )
        if any(not 0 <= index < length for listed, length in indexes for index in listed):
            raise _invalid(f"A co-partition group of {where} names a topic that is not there.")


def _check_partition_counts(topology: Requested) -> None:
    """Check that the number of partitions of each repartition topic can be derived. The number is derived from the
    source topics of the subtopologies that write to the repartition topic. The source topics of these subtopologies may
    themselves be repartition topics. Raises KafkaError STREAMS_INVALID_TOPOLOGY."""
    repartition = [topic for each in topology.subtopologies for topic in each.repartition_source_topics]
    known = {topic.name for topic in repartition if topic.partitions != 0}
    written = {name for each in topology.subtopologies for name in each.repartition_sink_topics}
    if any(topic.name not in known | written for topic in repartition):
        raise _invalid(
            "Failed to compute number of partitions for all repartition topics, because a repartition source topic is "
            "never used as a sink topic."
        )
    readers: dict[str, list[Requested.Subtopology]] = {}
    for each in topology.subtopologies:
        for topic in each.repartition_source_topics:
            readers.setdefault(topic.name, []).append(each)
    resolved = [each for each in topology.subtopologies if each.source_topics]
    for name in known:
        resolved += readers.pop(name, ())
    done = set[str]()
    while resolved:
        each = resolved.pop()
        if each.subtopology_id not in done:
            done.add(each.subtopology_id)
            known |= set(each.repartition_sink_topics)
            for name in each.repartition_sink_topics:
                resolved += readers.pop(name, ())
    if any(name not in known for each in topology.subtopologies for name in each.repartition_sink_topics):
        raise _invalid(
            "Failed to compute number of partitions for all repartition topics. There may be loops in the topology "
            "that cannot be resolved."
        )


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)


def _held_bytes(subtopologies: Iterable[Subtopology]) -> int:
    texts, entries = 0, 0
    for each in subtopologies:
        internal = (*each.state_changelog_topics, *each.repartition_source_topics)
        names = [each.subtopology_id, *each.source_topics, *each.repartition_sink_topics]
        names += [topic.name for topic in internal]
        names += [text for topic in internal for config in topic.topic_configs for text in (config.key, config.value)]
        entries += len(names) + sum(
            len(group.source_topics) + len(group.repartition_source_topics) for group in each.copartition_groups
        )
        texts += sum(len(name.encode()) for name in names)
    return PROTOCOL_OVERHEAD + texts + TOPIC_OVERHEAD * entries
