"""Arguments and results of Admin: new topics, configuration, the cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple, TypeVar

from oncelog.cluster import NO_NODE, Broker
from oncelog_protocol.messages.describe_configs import ConfigSource, ConfigType, DescribeConfigsResponse, ResourceType

__all__ = [
    "AlterConfig",
    "AlterOperation",
    "ClusterDescription",
    "ConfigEntry",
    "ConfigResource",
    "ConfigSource",
    "ConfigType",
    "CreatedTopic",
    "NewPartitions",
    "NewTopic",
    "ResourceType",
]

DescribedConfig = DescribeConfigsResponse.DescribeConfigsResult.DescribeConfigsResourceResult

BROKER_DEFAULT: Final = -1


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. With -1 as number of partitions or replication factor, the broker uses its default.

    `replica_assignments` places the replicas explicitly: partition -> node ids, the preferred leader first.
    With `replica_assignments`, leave `num_partitions` and `replication_factor` at -1, because the assignments determine
    both.
    """

    name: str
    num_partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    configs: Mapping[str, str | None] = field(default_factory=dict)
    replica_assignments: Mapping[int, Sequence[int]] | None = None


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """A topic's new number of partitions, `total`; `assignments` has the replicas of each added partition, in order."""

    total: int
    assignments: Sequence[Sequence[int]] | None = None


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A created topic; if the broker does not report the numbers and the configuration (CreateTopics before v5), the
    numbers are -1 and `configs` is empty.
    """

    name: str
    topic_id: bytes
    num_partitions: int
    replication_factor: int
    configs: Mapping[str, str | None]


class ConfigResource(NamedTuple):
    """The resource of a configuration: `ConfigResource.topic("orders")`, `ConfigResource.broker(1)`."""

    type: ResourceType
    name: str

    @classmethod
    def topic(cls, name: str) -> ConfigResource:
        return cls(ResourceType.TOPIC, name)

    @classmethod
    def broker(cls, node_id: int | None = None) -> ConfigResource:
        """Return the resource of one broker; without a node id, the resource of the defaults for all brokers."""
        return cls(ResourceType.BROKER, "" if node_id is None else str(node_id))

    @classmethod
    def broker_logger(cls, node_id: int) -> ConfigResource:
        """Return the resource of the loggers of one broker: a key is the name of a logger, its value a level."""
        return cls(ResourceType.BROKER_LOGGER, str(node_id))

    @classmethod
    def group(cls, group_id: str) -> ConfigResource:
        """Return the resource of the settings of a consumer-protocol group; the group need not exist."""
        return cls(ResourceType.GROUP, group_id)

    def __str__(self) -> str:
        """Return the name for use in messages: "topic orders", "broker 1", "broker default"."""
        return f"{self.type.name.lower().replace('_', ' ')} {self.name or 'default'}"


class ConfigSynonym(NamedTuple):
    """One of the levels at which a configuration key may be set, such as the topic or the broker, with the value there.
    The value applies if the key is set at none of the preceding levels.
    """

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One key in the configuration of a resource, with its value and source. `value` is None if the key is sensitive or
    not set; `source` is the level at which the key is set.
    """

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    type: ConfigType = ConfigType.UNKNOWN
    synonyms: tuple[ConfigSynonym, ...] = ()
    documentation: str | None = None

    @property
    def is_default(self) -> bool:
        return self.source is ConfigSource.DEFAULT_CONFIG


class AlterOperation(IntEnum):
    """The operation on a key (KIP-339). APPEND and SUBTRACT add and remove elements of a list value."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class AlterConfig(NamedTuple):
    """A change of one key. DELETE resets the key to its default and has no value."""

    name: str
    value: str | None
    operation: AlterOperation = AlterOperation.SET


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The brokers of a cluster and its controller; `controller_id` is -1 if unknown."""

    cluster_id: str | None
    controller_id: int
    brokers: tuple[Broker, ...]


def config_resource(type_: int, name: str) -> ConfigResource:
    """Return the resource that a response names."""
    return ConfigResource(_known(ResourceType, type_), name)


def by_node(resources: list[ConfigResource]) -> dict[int, list[ConfigResource]]:
    """Return the resources by the id of the broker to query. Only a broker itself knows its configuration; the
    configuration of all other resources can be requested from any broker (NO_NODE).
    """
    by_node: dict[int, list[ConfigResource]] = {}
    for resource in resources:
        is_broker = resource.type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) and resource.name
        by_node.setdefault(int(resource.name) if is_broker else NO_NODE, []).append(resource)
    return by_node


def config_entry(config: DescribedConfig) -> ConfigEntry:
    """Return the ConfigEntry for a setting in a response."""
    return ConfigEntry(
        name=config.name,
        value=config.value,
        source=_known(ConfigSource, config.config_source),
        is_read_only=config.read_only,
        is_sensitive=config.is_sensitive,
        type=_known(ConfigType, config.config_type),
        synonyms=tuple(
            ConfigSynonym(synonym.name, synonym.value, _known(ConfigSource, synonym.source))
            for synonym in config.synonyms
        ),
        documentation=config.documentation,
    )


E = TypeVar("E", ConfigSource, ConfigType, ResourceType)


def _known(kind: type[E], value: int) -> E:
    """Return the member of the enum `kind` with this value, or its member 0 (unknown) for a value that only newer
    brokers define.
    """
    try:
        return kind(value)
    except ValueError:
        return kind(0)
