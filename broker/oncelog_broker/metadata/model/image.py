"""The cluster as one immutable value. Each change results in a new cluster image, which shares all unchanged parts with
the old image.

Code that keeps a reference to a cluster image therefore always sees one consistent state. Two images can be compared
topic by topic with `is`, because unchanged topics are the same objects. Topic ids are the 16 raw bytes that the
protocol uses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

from oncelog_broker.metadata.model.payloads import Endpoint
from oncelog_broker.metadata.model.quotas import Quotas, Values, quota_values
from oncelog_protocol.acls import AclEntry, ResourcePattern
from oncelog_protocol.light_classes import NamedTuple, dataclass
from oncelog_protocol.quotas import DEFAULT, QuotaEntity
from oncelog_protocol.uuids import ZERO_UUID

NO_LEADER = -1
NO_CONTROLLER = -1

_K = TypeVar("_K")
_S = TypeVar("_S")
_V = TypeVar("_V")
_NOTHING: Mapping[Any, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker that is registered now. `epoch` increases with each registration of the broker (KIP-380)."""

    id: int
    epoch: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    features: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def endpoint(self, listener: str) -> Endpoint | None:
        """Return the address of this broker at the named listener; None if the broker has no such listener."""
        return next((endpoint for endpoint in self.endpoints if endpoint.listener == listener), None)


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The state of one partition. In a new partition whose leader the controller has not chosen yet, `leader` is
    NO_LEADER, `isr` is empty, and `leader_epoch` and `partition_epoch` are -1.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...] = ()
    leader: int = NO_LEADER
    leader_epoch: int = -1
    partition_epoch: int = -1
    """The version of the state node; a conditional change of leader or ISR must name this version (AlterPartition)."""
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    written: int = -1
    """The zxid of the last write of the state. If this zxid is below a broker's epoch, the state was written before
    that broker registered.
    """


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic and its partitions, by partition id. Partition ids run from 0 without gaps, except in a topic that was
    created from log directories of a larger cluster. `topic_id` is ZERO_UUID for a topic without an id.
    """

    name: str
    topic_id: bytes
    partitions: Mapping[int, PartitionState]


class TopicChanges(NamedTuple):
    """The differences between the topics of one cluster image and the topics of an older image. A topic that was
    deleted and created again is in both fields (`changed` and `removed`).
    """

    changed: tuple[Topic, ...]
    """Topics of the newer cluster image that are new or were changed."""
    removed: tuple[Topic, ...]
    """Topics of the older cluster image that were deleted, or replaced by a topic with another id."""


@dataclass(frozen=True, slots=True)
class ClusterImage:
    """The metadata of the cluster that a broker has read: brokers, topics, partition states, settings, users, ACLs,
    quotas and the controller. All mappings in a cluster image are read-only.
    """

    cluster_id: str
    brokers: Mapping[int, Broker] = field(default_factory=dict)
    topics: Mapping[str, Topic] = field(default_factory=dict)
    names_by_id: Mapping[bytes, str] = field(default_factory=dict)
    controller_id: int = NO_CONTROLLER
    topic_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Setting overrides by topic; a topic without overrides has no entry."""
    broker_configs: Mapping[int | None, Mapping[str, str]] = field(default_factory=dict)
    """Setting overrides by broker id; the key None has the overrides for all brokers."""
    user_configs: Mapping[str | None, Mapping[str, str]] = field(default_factory=dict)
    """SCRAM credentials and quotas by user; the key None has the quotas for all users."""
    unreadable_topics: frozenset[str] = frozenset()
    """Names of topics that exist, but whose nodes cannot be read. The logs of these topics are kept."""
    acls: Mapping[ResourcePattern, frozenset[AclEntry]] = field(default_factory=dict)
    """ACL entries by resource pattern; a pattern with an empty set has a node that cannot be read."""
    group_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Setting overrides by group; a group without overrides has no entry."""
    client_metrics: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Settings by subscription of client metrics; a subscription is deleted by removing all its settings."""
    quotas: Quotas = field(default_factory=dict)
    """Client quotas by user, client id and address. The quotas of users are also in `user_configs`."""

    def topic(self, name: str) -> Topic | None:
        return self.topics.get(name)

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        """Return the topic with this id; None if no topic has this id, or if it is ZERO_UUID (meaning "no id")."""
        name = self.names_by_id.get(topic_id)
        return None if name is None else self.topics[name]

    def partition(self, topic: str, partition: int) -> PartitionState | None:
        found = self.topics.get(topic)
        return None if found is None else found.partitions.get(partition)

    def has_partition(self, topic: str, partition: int) -> bool:
        return self.partition(topic, partition) is not None

    def leader_of(self, topic: str, partition: int) -> Broker | None:
        """Return the live broker that leads the partition; None if the partition does not exist, has no leader, or its
        leader is not registered now.
        """
        found = self.partition(topic, partition)
        return None if found is None else self.brokers.get(found.leader)

    def is_led(self, state: PartitionState) -> bool:
        """Whether the leader in `state` has been registered continuously since the state was written. A broker that has
        registered again since then does not lead until it is elected again.
        """
        leader = self.brokers.get(state.leader)
        return leader is not None and (state.written < 0 or leader.epoch <= state.written)

    def partitions_on(self, broker: int) -> Iterator[tuple[Topic, int, PartitionState]]:
        """Yield every partition that has a replica on the broker."""
        for topic in self.topics.values():
            for partition_id, partition in topic.partitions.items():
                if broker in partition.replicas:
                    yield topic, partition_id, partition

    def config_of_topic(self, name: str) -> Mapping[str, str]:
        return self.topic_configs.get(name, _NOTHING)

    def config_of_broker(self, broker: int) -> Mapping[str, str]:
        """Return the overrides that apply to a broker: its own overrides take precedence over the overrides for all
        brokers.
        """
        return {**self.broker_configs.get(None, _NOTHING), **self.broker_configs.get(broker, _NOTHING)}

    def config_of_user(self, user: str) -> Mapping[str, str]:
        return self.user_configs.get(user, _NOTHING)

    def config_of_group(self, group_id: str) -> Mapping[str, str]:
        return self.group_configs.get(group_id, _NOTHING)

    def with_group_configs(self, changed: Mapping[str, Mapping[str, str]]) -> ClusterImage:
        """Return a cluster image in which these overrides replace the earlier overrides of the same groups; empty
        overrides remove the group.
        """
        return replace(self, group_configs=_with_overrides(self.group_configs, changed))

    def config_of_client_metrics(self, name: str) -> Mapping[str, str]:
        return self.client_metrics.get(name, _NOTHING)

    def with_client_metrics(self, changed: Mapping[str, Mapping[str, str]]) -> ClusterImage:
        """Return a cluster image in which these settings replace the earlier settings of the same subscriptions; empty
        settings remove the subscription.
        """
        return replace(self, client_metrics=_with_overrides(self.client_metrics, changed))

    def with_user_configs(self, changed: Mapping[str | None, Mapping[str, str]]) -> ClusterImage:
        """Return a cluster image in which these settings replace the earlier settings of the same users; empty settings
        remove the user. The quotas of these users are replaced, too.
        """
        entities = {user: QuotaEntity(DEFAULT if user is None else user) for user in changed}
        values = {entities[user]: quota_values(entities[user], settings) for user, settings in changed.items()}
        return replace(self.with_quotas(values), user_configs=_with_overrides(self.user_configs, changed))

    def with_quotas(self, changed: Mapping[QuotaEntity, Values]) -> ClusterImage:
        """Return a cluster image in which these quotas replace the earlier quotas of the same entities; empty quotas
        remove the entity. If nothing has changed, the method returns this cluster image.
        """
        if all(self.quotas.get(entity, _NOTHING) == values for entity, values in changed.items()):
            return self
        return replace(self, quotas=_with_overrides(self.quotas, changed))

    def topic_changes_since(self, older: ClusterImage) -> TopicChanges:
        """Return the topics whose partitions were created, changed or deleted since an older image. A topic is not
        included if only its settings changed.
        """
        if self.topics is older.topics:
            return TopicChanges((), ())
        changed = tuple(t for name, t in self.topics.items() if older.topics.get(name) is not t)
        removed = tuple(
            old
            for name, old in older.topics.items()
            if (new := self.topics.get(name)) is None or new.topic_id != old.topic_id
        )
        return TopicChanges(changed, removed)

    def with_topics(
        self, changed: Iterable[Topic], removed: Iterable[str] = (), unreadable: Iterable[str] = ()
    ) -> ClusterImage:
        """Return a cluster image in which these topics replace the topics with the same name, without the topics in
        `removed`. `unreadable` names topics that exist, but whose nodes cannot be read; this cluster image contains
        none of these topics.

        Each call copies the mappings, so pass many changes in one call.
        """
        topics, names = dict(self.topics), dict(self.names_by_id)
        unread = {*self.unreadable_topics, *unreadable}
        for name in removed:
            unread.discard(name)
            gone = topics.pop(name, None)
            if gone is not None:
                names.pop(gone.topic_id, None)
        for topic in changed:
            before = topics.get(topic.name)
            if before is not None:
                names.pop(before.topic_id, None)
            topics[topic.name] = topic
            unread.discard(topic.name)
            if topic.topic_id != ZERO_UUID:
                names[topic.topic_id] = topic.name
        return replace(self, topics=topics, names_by_id=names, unreadable_topics=frozenset(unread))

    def with_topic(self, topic: Topic) -> ClusterImage:
        return self.with_topics((topic,))

    def without_topic(self, name: str) -> ClusterImage:
        return self.with_topics((), (name,))

    def with_partition(self, topic: str, partition_id: int, partition: PartitionState) -> ClusterImage:
        """Return a cluster image with this partition state. Raises KeyError if the topic does not exist."""
        found = self.topics[topic]
        return self.with_topic(replace(found, partitions={**found.partitions, partition_id: partition}))

    def with_topic_configs(self, changed: Mapping[str, Mapping[str, str]]) -> ClusterImage:
        """Return a cluster image in which these overrides replace the earlier overrides of the same topics; empty
        overrides remove the entry.
        """
        return replace(self, topic_configs=_with_overrides(self.topic_configs, changed))

    def with_topic_config(self, name: str, overrides: Mapping[str, str]) -> ClusterImage:
        return self.with_topic_configs({name: overrides})

    def with_broker_configs(self, changed: Mapping[int | None, Mapping[str, str]]) -> ClusterImage:
        """Return a cluster image in which these overrides replace the earlier overrides of the same brokers; empty
        overrides remove the entry.
        """
        return replace(self, broker_configs=_with_overrides(self.broker_configs, changed))

    def with_acls(self, changed: Mapping[ResourcePattern, frozenset[AclEntry] | None]) -> ClusterImage:
        """Return a cluster image in which these ACL entries replace the earlier entries of the same patterns; None
        removes a pattern.
        """
        acls = dict(self.acls)
        for pattern, entries in changed.items():
            if entries is None:
                acls.pop(pattern, None)
            else:
                acls[pattern] = entries
        return replace(self, acls=acls)

    def with_broker(self, broker: Broker) -> ClusterImage:
        return replace(self, brokers={**self.brokers, broker.id: broker})

    def without_broker(self, broker: int) -> ClusterImage:
        return replace(self, brokers={id_: kept for id_, kept in self.brokers.items() if id_ != broker})

    def with_controller(self, broker: int) -> ClusterImage:
        """Return a cluster image with this controller; NO_CONTROLLER means that no broker is controller at the
        moment."""
        return replace(self, controller_id=broker)


class ImageView(Protocol):
    """Read access to the present cluster image, as `MetadataCache` provides it."""

    @property
    def image(self) -> ClusterImage:
        """The present image of the cluster."""


def _with_overrides(
    before: Mapping[_K, Mapping[_S, _V]], changed: Mapping[_K, Mapping[_S, _V]]
) -> dict[_K, Mapping[_S, _V]]:
    merged = {**before, **changed}
    for key, overrides in changed.items():
        if not overrides:
            del merged[key]
    return merged
