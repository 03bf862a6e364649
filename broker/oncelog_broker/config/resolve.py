"""Resolves the effective value of a topic or broker key and its source, for logs of partitions and for DescribeConfigs.

The value for a topic is the topic's override, otherwise the value of the first of its broker keys that is set
(`topic_keys`). The value of a broker key comes from the first source that has it: dynamic settings of this broker,
dynamic settings of the cluster, startup settings, default (T23).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.config.broker_keys import BROKER_KEYS, BROKER_SYNONYMS
from oncelog_broker.config.client_metrics_keys import CLIENT_METRICS_KEYS
from oncelog_broker.config.declared import ConfigKey, ConfigSource, UpdateMode
from oncelog_broker.config.group_keys import GROUP_KEYS
from oncelog_broker.config.overrides import override_key
from oncelog_broker.config.stored import readable_topic_overrides
from oncelog_broker.config.topic_keys import TOPIC_KEYS, TopicKey
from oncelog_protocol.light_classes import NamedTuple


class ConfigSynonym(NamedTuple):
    """A value that was set for a key, and the name under which it was set, which may be a synonym of the key. A value
    of None means that the value is hidden.
    """

    name: str
    value: str | None
    source: ConfigSource


class DescribedConfig(NamedTuple):
    """An entry of DescribeConfigs: the effective value, and all given values, of which the first is the effective
    value."""

    key: ConfigKey[Any]
    value: str | None
    source: ConfigSource
    synonyms: tuple[ConfigSynonym, ...]
    is_read_only: bool

    @property
    def name(self) -> str:
        return self.key.name

    @property
    def is_default(self) -> bool:
        return self.source is ConfigSource.DEFAULT_CONFIG


def resolve_topic(overrides: Mapping[str, str], broker: BrokerConfig) -> dict[str, object]:
    """Return the effective typed value of each topic key, for a topic with these `overrides` on this broker. The module
    `stored` replaces values that this release cannot read.
    """
    overrides = readable_topic_overrides(overrides)
    return {
        name: topic_key.key.parse(overrides[name]) if name in overrides else _inherited(topic_key, broker)[0]
        for name, topic_key in TOPIC_KEYS.items()
    }


def describe_topic(overrides: Mapping[str, str], broker: BrokerConfig) -> list[DescribedConfig]:
    """Return the DescribeConfigs entries of every topic key."""
    overrides = readable_topic_overrides(overrides)
    return [_describe_topic_key(topic_key, overrides, broker) for topic_key in TOPIC_KEYS.values()]


def describe_group(overrides: Mapping[str, str], broker: BrokerConfig) -> list[DescribedConfig]:
    """Return the DescribeConfigs entries of every key of a group."""
    described = []
    for name, group_key in GROUP_KEYS.items():
        value, source = group_key.key.format(group_key.key.default), ConfigSource.DEFAULT_CONFIG
        synonyms: tuple[ConfigSynonym, ...] = (ConfigSynonym(name, value, source),)
        if group_key.bounds is not None:
            synonyms = tuple(_given((group_key.bounds.broker,), broker))
            value, source = group_key.key.format(broker[group_key.bounds.broker]), synonyms[0].source
        if name in overrides:
            value, source = overrides[name], ConfigSource.DYNAMIC_GROUP_CONFIG
            synonyms = (ConfigSynonym(name, value, source), *synonyms)
        described.append(DescribedConfig(group_key.key, value, source, synonyms, is_read_only=False))
    return described


def describe_client_metrics(overrides: Mapping[str, str]) -> list[DescribedConfig]:
    """Return the DescribeConfigs entries of every key of a subscription of client metrics."""
    described = []
    for name, key in CLIENT_METRICS_KEYS.items():
        value, source, synonyms = key.format(key.default), ConfigSource.DEFAULT_CONFIG, tuple[ConfigSynonym, ...]()
        if name in overrides:
            value, source = overrides[name], ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG
            synonyms = (ConfigSynonym(name, value, source),)
        described.append(DescribedConfig(key, value, source, synonyms, is_read_only=False))
    return described


def describe_broker(broker: BrokerConfig) -> list[DescribedConfig]:
    """Return the entry of each broker key, for a DescribeConfigs response."""
    described = []
    for name, value in broker.overrides.items():
        of_listener = override_key(name)
        assert of_listener is not None
        synonym = ConfigSynonym(name, of_listener.format(value), ConfigSource.STATIC_BROKER_CONFIG)
        described.append(DescribedConfig(of_listener, synonym.value, synonym.source, (synonym,), is_read_only=True))
    for key in BROKER_KEYS.values():
        synonyms = tuple(_given((key, *BROKER_SYNONYMS.get(key.name, ())), broker))
        own = synonyms[0] if synonyms and synonyms[0].name == key.name else None
        source = own.source if own else ConfigSource.DEFAULT_CONFIG
        is_read_only = key.update_mode is UpdateMode.READ_ONLY
        described.append(DescribedConfig(key, key.format(broker[key]), source, synonyms, is_read_only))
    return described


def describe_effectless(own: Mapping[str, str], of_all: Mapping[str, str]) -> list[DescribedConfig]:
    """Return the DescribeConfigs entries of Kafka's keys without effect in oncelog, for the dynamic settings of this
    broker (`own`) and of all brokers.
    """
    given: dict[str, list[ConfigSynonym]] = {}
    for settings, source in (
        (own, ConfigSource.DYNAMIC_BROKER_CONFIG),
        (of_all, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
    ):
        for name, text in settings.items():
            if name not in BROKER_KEYS:
                given.setdefault(name, []).append(ConfigSynonym(name, text, source))
    if not given:
        return []
    from oncelog_broker.config.effectless_keys import dynamic_keys

    return [
        DescribedConfig(
            dynamic_keys()[name], synonyms[0].value, synonyms[0].source, tuple(synonyms), is_read_only=False
        )
        for name, synonyms in given.items()
        if name in dynamic_keys()  # skip keys that only other releases know
    ]


def _describe_topic_key(topic_key: TopicKey, overrides: Mapping[str, str], broker: BrokerConfig) -> DescribedConfig:
    key = topic_key.key
    value, source = _inherited(topic_key, broker)
    synonyms = tuple(_given((synonym.key for synonym in topic_key.synonyms), broker))
    if key.name in overrides:
        value, source = key.parse(overrides[key.name]), ConfigSource.DYNAMIC_TOPIC_CONFIG
        synonyms = (ConfigSynonym(key.name, key.format(value), source), *synonyms)
    return DescribedConfig(key, key.format(value), source, synonyms, is_read_only=False)


def _inherited(topic_key: TopicKey, broker: BrokerConfig) -> tuple[object, ConfigSource]:
    """Return the value of a topic key for topics without an override, which comes from the broker's settings; and the
    source of this value.
    """
    if not topic_key.synonyms:
        return topic_key.key.default, ConfigSource.DEFAULT_CONFIG
    for synonym in topic_key.synonyms:
        for source, value in broker.settings(synonym.key):
            return synonym.to_topic_value(value), source
    raise AssertionError(f"the last broker key of {topic_key.key.name} has no default")


def _given(
    keys: Iterator[ConfigKey[Any]] | tuple[ConfigKey[Any], ...], broker: BrokerConfig
) -> Iterator[ConfigSynonym]:
    for key in keys:
        for source, value in broker.settings(key):
            yield ConfigSynonym(key.name, key.format(value), source)
