"""The share partitions whose state a group has initialized, is initializing or is deleting, as an immutable value.
Pure.

Only share partitions with initialized state are assigned. The group asks the share coordinators to initialize the share
partitions of subscribed topics. The group logs these share partitions as initializing until the share coordinators have
initialized them. If a coordinator fails meanwhile, these share partitions are initialized again, which does no harm.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from oncelog_broker.coordinator.group.assignments import Target
from oncelog_protocol.coordinator_records.share_groups import ShareGroupStatePartitionMetadataValue

Value = ShareGroupStatePartitionMetadataValue


class NamedPartitions(NamedTuple):
    """Partitions of one topic, with the topic's name."""

    name: str
    partitions: frozenset[int]


Topics = Mapping[bytes, NamedPartitions]
"""Topic id -> partition indexes of the topic."""
NO_TOPICS: Final[Topics] = MappingProxyType({})


class StatePartitions(NamedTuple):
    """The share partitions of one group by the status of their state. `deleting` maps topic ids to topic names."""

    initializing: Topics = NO_TOPICS
    initialized: Topics = NO_TOPICS
    deleting: Mapping[bytes, str] = MappingProxyType({})

    def with_initializing(self, topics: Topics) -> StatePartitions:
        """Mark these share partitions as initializing, also if they were initialized before."""
        return self._replace(
            initializing=_plus(self.initializing, topics), initialized=_minus(self.initialized, _numbers(topics))
        )

    def done(self, topics: Target) -> StatePartitions:
        """Mark these share partitions as initialized, if the group has marked them as initializing."""
        found = {
            topic_id: NamedPartitions(named.name, named.partitions & topics[topic_id])
            for topic_id, named in self.initializing.items()
            if topic_id in topics and named.partitions & topics[topic_id]
        }
        return self._replace(initializing=_minus(self.initializing, topics), initialized=_plus(self.initialized, found))

    def failed(self, topics: Target) -> StatePartitions:
        """Remove these share partitions from `initializing`, because their initialization failed."""
        return self._replace(initializing=_minus(self.initializing, topics))

    def being_deleted(self, topic_ids: Iterable[bytes]) -> StatePartitions:
        """Mark these topics as being deleted."""
        names = {}
        for topic_id in topic_ids:
            named = self.initialized.get(topic_id) or self.initializing.get(topic_id)
            if named is not None:
                names[topic_id] = named.name
        without = self.without(names)
        return without._replace(deleting={**without.deleting, **names})

    def without(self, topic_ids: Iterable[bytes]) -> StatePartitions:
        """Remove these topics from all three mappings (initializing, initialized, deleting)."""
        gone = frozenset(topic_ids)
        return StatePartitions(
            {topic_id: named for topic_id, named in self.initializing.items() if topic_id not in gone},
            {topic_id: named for topic_id, named in self.initialized.items() if topic_id not in gone},
            {topic_id: name for topic_id, name in self.deleting.items() if topic_id not in gone},
        )

    def assignable(self) -> Target:
        """Return the share partitions that may be assigned."""
        return _numbers(self.initialized)

    def all(self) -> Target:
        """Return the share partitions that may have state, initialized or initializing."""
        return _numbers(_plus(self.initialized, self.initializing))

    def topic_ids(self) -> frozenset[bytes]:
        """Return the ids of all topics in the three mappings (initializing, initialized, deleting)."""
        return frozenset((*self.initializing, *self.initialized, *self.deleting))

    def to_value(self) -> Value | None:
        """Return the value of the logged record; None if `initializing`, `initialized` and `deleting` are all empty."""
        if self == StatePartitions():
            return None
        return Value(
            initializing_topics=_infos(self.initializing),
            initialized_topics=_infos(self.initialized),
            deleting_topics=[
                Value.TopicInfo(topic_id=topic_id, topic_name=name) for topic_id, name in self.deleting.items()
            ],
        )

    @classmethod
    def of(cls, value: Value | None) -> StatePartitions:
        """Return the share partitions of a group, decoded from the value of a record."""
        if value is None:
            return cls()
        return cls(
            _topics(value.initializing_topics),
            _topics(value.initialized_topics),
            {topic.topic_id: topic.topic_name for topic in value.deleting_topics},
        )


def _topics(infos: Iterable[Value.TopicPartitionsInfo]) -> Topics:
    return {info.topic_id: NamedPartitions(info.topic_name, frozenset(info.partitions)) for info in infos}


def _infos(topics: Topics) -> list[Value.TopicPartitionsInfo]:
    return [
        Value.TopicPartitionsInfo(topic_id=topic_id, topic_name=named.name, partitions=sorted(named.partitions))
        for topic_id, named in topics.items()
    ]


def _numbers(topics: Topics) -> Target:
    return {topic_id: named.partitions for topic_id, named in topics.items()}


def _plus(topics: Topics, more: Topics) -> Topics:
    merged = dict(topics)
    for topic_id, named in more.items():
        before = merged.get(topic_id)
        merged[topic_id] = (
            named if before is None else NamedPartitions(named.name, before.partitions | named.partitions)
        )
    return merged


def _minus(topics: Topics, fewer: Target) -> Topics:
    left = {}
    for topic_id, named in topics.items():
        partitions = named.partitions - fewer.get(topic_id, frozenset())
        if partitions:
            left[topic_id] = NamedPartitions(named.name, partitions)
    return left
