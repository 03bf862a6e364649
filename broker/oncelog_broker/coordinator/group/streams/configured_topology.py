"""Compares a topology with the existing topics. The result has the number of tasks of each subtopology, the missing
internal topics, and the reason why tasks cannot be assigned. Pure.

Kafka 4.3's counterpart is InternalTopicManager. In Kafka, all repartition topics for which the application fixes a
number of partitions must have the same number. In this broker, this rule applies only to topics of the same
co-partition group (topics that one subtopology joins).

The application may fix the number of partitions of a repartition topic. If the application does not fix the number, a
repartition topic gets as many partitions as the topics with which it is co-partitioned. A repartition topic that is
co-partitioned with no topic gets the largest number of partitions among the source topics of all subtopologies that
write to it. A changelog topic has one partition for each task of its subtopology.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final

from oncelog_broker.coordinator.group.streams.streams_topology import StreamsTopology, Subtopology, source_topics
from oncelog_protocol.coordinator_records.streams_groups import TopicInfo
from oncelog_protocol.light_classes import NamedTuple
from oncelog_protocol.messages.streams_group_heartbeat import StatusCode

PartitionsOf = Callable[[str], int | None]
"""Function of a topic name that returns the topic's number of partitions; None if the topic does not exist."""
DEFAULT_REPLICATION_FACTOR: Final = -1
MAX_TASKS: Final = 10_000
"""Maximum number of active tasks of a group: one member may get all tasks of the group in one heartbeat, and handling
this heartbeat must take only milliseconds.
"""
NAMED_IN_STATUS: Final = 3
"""Maximum number of topic names in the detail text of a status."""


class WantedTopic(NamedTuple):
    """An internal topic that the group needs. A `replication_factor` of -1 stands for the broker's default."""

    name: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]


class ConfiguredSubtopology(NamedTuple):
    """A subtopology with its number of tasks; `sources` are the topics that the tasks read."""

    tasks: int
    sources: tuple[str, ...]
    repartition_sources: tuple[WantedTopic, ...]
    changelogs: tuple[WantedTopic, ...]

    @property
    def is_stateful(self) -> bool:
        return bool(self.changelogs)


class Problem(NamedTuple):
    """The reason why the tasks of a group cannot be assigned."""

    code: StatusCode
    detail: str


class ConfiguredTopology(NamedTuple):
    """The result of comparing a topology with the existing topics. `missing` has the internal topics that the broker
    must create. If any other problem was found, `subtopologies` is empty.
    """

    epoch: int
    subtopologies: Mapping[str, ConfiguredSubtopology]
    missing: tuple[WantedTopic, ...] = ()
    problem: Problem | None = None

    @property
    def is_ready(self) -> bool:
        """Whether tasks can be assigned."""
        return self.problem is None


class _Wrong(Exception):
    def __init__(self, code: StatusCode, detail: str) -> None:
        self.problem = Problem(code, detail)


def configure(topology: StreamsTopology, partitions_of: PartitionsOf) -> ConfiguredTopology:
    """Compare a topology with the existing topics."""
    existing = {name: partitions_of(name) for name in topology.required}
    try:
        return _configured(topology, existing.__getitem__)
    except _Wrong as wrong:
        return ConfiguredTopology(topology.epoch, MappingProxyType({}), problem=wrong.problem)


def _configured(topology: StreamsTopology, partitions_of: PartitionsOf) -> ConfiguredTopology:
    absent = sorted(
        name
        for each in topology.subtopologies.values()
        for name in set(each.source_topics)
        if partitions_of(name) is None
    )
    if absent:
        raise _Wrong(StatusCode.MISSING_SOURCE_TOPICS, f"Source topics {_some(absent)} are missing.")
    decided = _repartition_counts(topology, partitions_of)

    def count_of(name: str) -> int:
        found = partitions_of(name)
        return decided[name] if found is None else found

    flexible = _flexible(topology)
    for each in topology.subtopologies.values():
        for group in _copartitioned(each):
            decided |= _agreed(group, flexible, decided, count_of)
    configured = {
        subtopology_id: _subtopology(each, decided, count_of) for subtopology_id, each in topology.subtopologies.items()
    }
    tasks = sum(each.tasks for each in configured.values())
    if tasks > MAX_TASKS:
        detail = f"The topology has {tasks} tasks, one for each partition; at most {MAX_TASKS} are assigned."
        raise _Wrong(StatusCode.INCORRECTLY_PARTITIONED_TOPICS, detail)
    wanted = {
        topic.name: topic for each in configured.values() for topic in (*each.repartition_sources, *each.changelogs)
    }
    missing = []
    for name, topic in sorted(wanted.items()):
        found = partitions_of(name)
        if found is None:
            missing.append(topic)
        elif found != topic.partitions:
            raise _Wrong(
                StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                f"Existing topic {name} has different number of partitions: expected {topic.partitions}, found {found}",
            )
    problem = None
    if missing:
        names = _some([topic.name for topic in missing])
        problem = Problem(StatusCode.MISSING_INTERNAL_TOPICS, f"Internal topics are missing: {names}")
    return ConfiguredTopology(topology.epoch, configured, tuple(missing), problem)


def _repartition_counts(topology: StreamsTopology, partitions_of: PartitionsOf) -> dict[str, int]:
    """Return the number of partitions of each repartition topic, without regard to co-partitioning, which is applied
    later. The caller has checked that all source topics exist; `check_topology` has checked that each number can be
    derived."""
    counts = {
        topic.name: topic.partitions
        for each in topology.subtopologies.values()
        for topic in each.repartition_source_topics
        if topic.partitions != 0
    }
    readers: dict[str, list[Subtopology]] = {}
    known: list[tuple[int, str]] = [(-count, name) for name, count in counts.items()]
    for each in topology.subtopologies.values():
        for name in each.source_topics:
            readers.setdefault(name, []).append(each)
            known.append((-(partitions_of(name) or 0), name))
        for topic in each.repartition_source_topics:
            readers.setdefault(topic.name, []).append(each)
    # The topics with the most partitions are handled first. So the first count that a repartition topic gets is the
    # largest, and each subtopology is visited only once, even if subtopologies write to each other in a loop.
    heapq.heapify(known)
    visited = set[str]()
    while known:
        negated, name = heapq.heappop(known)
        for each in readers.pop(name, ()):
            if each.subtopology_id not in visited:
                visited.add(each.subtopology_id)
                unknown = [sink for sink in each.repartition_sink_topics if sink not in counts]
                counts |= dict.fromkeys(unknown, -negated)
                for sink in unknown:
                    heapq.heappush(known, (negated, sink))
    return counts


def _flexible(topology: StreamsTopology) -> Mapping[str, bool]:
    """Map every repartition topic to True if the application has not fixed its number of partitions, otherwise to
    False.
    """
    return {
        topic.name: topic.partitions == 0
        for each in topology.subtopologies.values()
        for topic in each.repartition_source_topics
    }


def _copartitioned(subtopology: Subtopology) -> Iterable[list[str]]:
    for group in subtopology.copartition_groups:
        names = [subtopology.source_topics[index] for index in group.source_topics]
        names += [subtopology.repartition_source_topics[index].name for index in group.repartition_source_topics]
        yield sorted(set(names))


def _agreed(
    names: list[str], flexible: Mapping[str, bool], decided: Mapping[str, int], count_of: Callable[[str], int]
) -> dict[str, int]:
    """Return the number of partitions of each repartition topic of a co-partition group."""
    repartition = [name for name in names if name in flexible]
    others = {name: count_of(name) for name in names if name not in flexible}
    fixed = {name: decided[name] for name in repartition if not flexible[name]}
    leading = others or fixed
    if len(set(leading.values())) > 1:
        shown = ", ".join(f"{name}={count}" for name, count in leading.items())
        raise _Wrong(
            StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
            f"Following topics do not have the same number of partitions: [{{{shown}}}]",
        )
    if not repartition:
        return {}
    count = next(iter(leading.values()), None) or max(count_of(name) for name in repartition)
    for name, own in fixed.items():
        if own != count:
            raise _Wrong(
                StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                f"Number of partitions [{own}] of repartition topic [{name}] doesn't match number of partitions "
                f"[{count}] of the source topic.",
            )
    return dict.fromkeys(repartition, count)


def _subtopology(
    subtopology: Subtopology, decided: Mapping[str, int], count_of: Callable[[str], int]
) -> ConfiguredSubtopology:
    sources = source_topics(subtopology)
    tasks = max(count_of(name) for name in sources)
    return ConfiguredSubtopology(
        tasks,
        tuple(sources),
        tuple(_wanted(topic, decided[topic.name]) for topic in subtopology.repartition_source_topics),
        tuple(_wanted(topic, tasks) for topic in subtopology.state_changelog_topics),
    )


def _wanted(topic: TopicInfo, partitions: int) -> WantedTopic:
    return WantedTopic(
        topic.name,
        partitions,
        topic.replication_factor or DEFAULT_REPLICATION_FACTOR,
        {config.key: config.value for config in topic.topic_configs},
    )


def _some(names: list[str]) -> str:
    """Join the first topic names into one text; if there are more names, their number is appended."""
    more = len(names) - NAMED_IN_STATUS
    return ", ".join(names[:NAMED_IN_STATUS]) + (f" and {more} additional topics" if more > 0 else "")
