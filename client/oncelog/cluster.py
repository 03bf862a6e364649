"""The client's view of the cluster: brokers, topics, leaders. A Cluster is immutable; an update creates a new
`Cluster`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final, NamedTuple

from oncelog_protocol.errors import ErrorCode
from oncelog_protocol.messages.metadata import MetadataResponse
from oncelog_protocol.schema import ZERO_UUID

MetadataTopic = MetadataResponse.MetadataResponseTopic

NO_NODE: Final = -1
NO_LEADER_EPOCH: Final = -1

MISSING_SHOWN: Final = 5
"""Maximum number of missing partitions that one message names."""
NOT_THERE: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class TopicPartition(NamedTuple):
    """A partition by name and number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker and its address."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition and its replicas; `leader` is NO_NODE while it has no leader, and `leader_epoch` is -1 if unknown
    (Metadata before v7).
    """

    index: int
    leader: int
    leader_epoch: int = NO_LEADER_EPOCH
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()
    error_code: int = 0


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic with its partitions by index; a topic with an `error_code` has no partitions. `error_message` is the
    detail of the error, None if there is none.
    """

    name: str
    topic_id: bytes = ZERO_UUID
    is_internal: bool = False
    partitions: Mapping[int, Partition] = field(default_factory=dict)
    error_code: int = 0
    error_message: str | None = None


@dataclass(frozen=True, slots=True)
class Cluster:
    """The brokers by node id, and the topics by name. `controller_id` is NO_NODE if unknown."""

    cluster_id: str | None = None
    controller_id: int = NO_NODE
    brokers: Mapping[int, Broker] = field(default_factory=dict)
    topics: Mapping[str, Topic] = field(default_factory=dict)

    def partition(self, topic: str, index: int) -> Partition | None:
        known = self.topics.get(topic)
        return known.partitions.get(index) if known is not None else None

    def leader(self, topic: str, index: int) -> int:
        """Return the node id of the leader, NO_NODE if there is no leader or its broker is not known."""
        partition = self.partition(topic, index)
        return partition.leader if partition is not None and partition.leader in self.brokers else NO_NODE

    def updated(self, response: MetadataResponse, *, is_complete: bool = False) -> Cluster:
        """Return the cluster after `response`; topics that the response does not name are kept, unless the response
        `is_complete`.

        Invariant: as long as a topic's id is unchanged, the leader epoch of a partition never decreases, because the
        response of a lagging broker must not direct requests to the old leader again (KIP-320). Exception: a cached
        leader that is not among the brokers of the response is replaced even by a leader with a lower epoch, so that
        one wrong response cannot block the partition permanently.
        """
        brokers = {
            broker.node_id: Broker(broker.node_id, broker.host, broker.port, broker.rack) for broker in response.brokers
        }
        topics = {} if is_complete else dict(self.topics)
        for answer in response.topics:
            if answer.name is None:
                continue
            error_code = error_of(answer)
            if error_code in NOT_THERE:
                topics.pop(answer.name, None)
            elif error_code != answer.error_code or (error_code and not answer.partitions):
                # Keep the cached metadata of a topic with an error, because the error may be temporary, for example
                # LEADER_NOT_AVAILABLE.
                unusable = Topic(answer.name, answer.topic_id, error_code=error_code, error_message=fault_of(answer))
                topics.setdefault(answer.name, unusable)
            else:
                topics[answer.name] = _topic(answer, self.topics.get(answer.name), brokers)
        return Cluster(response.cluster_id, response.controller_id, brokers, topics)

    def with_brokers(self, brokers: Iterable[Broker]) -> Cluster:
        """Return the cluster with additional brokers, which a response has named as coordinator or new leader."""
        news = {}
        for broker in brokers:
            known = self.brokers.get(broker.node_id)
            if known is None or (known.host, known.port) != (broker.host, broker.port):
                news[broker.node_id] = broker
        return replace(self, brokers={**self.brokers, **news}) if news else self

    def with_leader(self, topic: str, index: int, leader: int, leader_epoch: int) -> Cluster:
        """Return the cluster after a response has named a new leader (KIP-951); unchanged if the cluster knows a newer
        leader epoch.
        """
        known, partition = self.topics.get(topic), self.partition(topic, index)
        if known is None or partition is None or leader not in self.brokers or leader_epoch <= partition.leader_epoch:
            return self
        partitions = {**known.partitions, index: replace(partition, leader=leader, leader_epoch=leader_epoch)}
        return replace(self, topics={**self.topics, topic: replace(known, partitions=partitions)})

    def without(self, names: Iterable[str]) -> Cluster:
        """Return a cluster without these topics."""
        gone = set(names)
        return replace(self, topics={name: topic for name, topic in self.topics.items() if name not in gone})


def error_of(answer: MetadataTopic) -> int:
    """Return the error code of a topic in a Metadata response.

    The code is LEADER_NOT_AVAILABLE if the partition numbers are not exactly 0 to n-1. No real topic has other numbers.
    For each number in a gap, the client would create a queue.
    """
    return ErrorCode.LEADER_NOT_AVAILABLE if fault_of(answer) is not None else answer.error_code


def fault_of(answer: MetadataTopic) -> str | None:
    """Return the error in the partition numbers of a topic, None if they are valid."""
    numbers = {told.partition_index for told in answer.partitions}
    if not numbers or (len(numbers) == len(answer.partitions) and min(numbers) >= 0 and max(numbers) < len(numbers)):
        return None
    if len(numbers) < len(answer.partitions) or min(numbers) < 0:
        return "the broker's answer names its partitions wrongly"
    missing = list(islice((number for number in range(max(numbers)) if number not in numbers), MISSING_SHOWN + 1))
    shown = ", ".join(map(str, missing[:MISSING_SHOWN])) + (", ..." if len(missing) > MISSING_SHOWN else "")
    return (
        f"no broker holds its partitions {shown}, so the topic cannot be used: it was taken over without them. Start "
        "the cluster again with the data directories that have them, or delete the topic"
    )


def _topic(answer: MetadataTopic, before: Topic | None, brokers: Mapping[int, Broker]) -> Topic:
    assert answer.name is not None
    is_same = before is not None and ZERO_UUID in (before.topic_id, answer.topic_id)
    is_same = is_same or (before is not None and before.topic_id == answer.topic_id)
    partitions = {}
    for told in answer.partitions:
        partition = Partition(
            told.partition_index,
            told.leader_id,
            told.leader_epoch,
            tuple(told.replica_nodes),
            tuple(told.isr_nodes),
            tuple(told.offline_replicas),
            told.error_code,
        )
        known = before.partitions.get(told.partition_index) if before is not None and is_same else None
        is_older = (
            known is not None
            and NO_LEADER_EPOCH < partition.leader_epoch < known.leader_epoch
            and known.leader in brokers
        )
        partitions[told.partition_index] = known if known is not None and is_older else partition
    return Topic(answer.name, answer.topic_id, answer.is_internal, partitions, answer.error_code)
