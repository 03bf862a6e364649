"""The settings of group coordination, as plain values for the modules without I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from oncelog_broker.config import broker_keys as keys
from oncelog_broker.config import group_keys, share_keys, streams_keys
from oncelog_broker.config.broker_config import BrokerConfig

MINUTE_MS = 60_000


class ConsumerGroupSettings(NamedTuple):
    """The settings that a single group of the consumer protocol may override. The field names are the keys without
    "consumer."; times are in ms."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000

    def with_own(self, overrides: Mapping[str, str]) -> ConsumerGroupSettings:
        """Return the settings of a consumer group: the values of this object, except where the group's overrides have
        other values. Overrides with other keys are ignored.
        """
        return self._replace(**_own(overrides, "consumer.", self._fields))


class ShareGroupSettings(NamedTuple):
    """The settings of the coordinator that a single share group may override. The field names are the keys without
    "share."; times are in ms."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000

    def with_own(self, overrides: Mapping[str, str]) -> ShareGroupSettings:
        """Return the settings of a share group: these settings with the overrides of the group."""
        return self._replace(**_own(overrides, "share.", self._fields))


class StreamsGroupSettings(NamedTuple):
    """The settings that a single streams group may override; the field names are the keys without "streams.", and times
    are in ms.
    """

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    num_standby_replicas: int = 0
    initial_rebalance_delay_ms: int = 3_000

    def with_own(self, overrides: Mapping[str, str]) -> StreamsGroupSettings:
        """Return the settings of a streams group: these settings with the overrides of the group."""
        return self._replace(**_own(overrides, "streams.", self._fields))


def _own(overrides: Mapping[str, str], prefix: str, fields: Sequence[str]) -> dict[str, int]:
    """Return the parsed values of the overrides whose keys belong to `fields`; other overrides are ignored."""
    own = {}
    for name, text in overrides.items():
        field = name.removeprefix(prefix).replace(".", "_")
        if name.startswith(prefix) and field in fields:
            own[field] = group_keys.GROUP_KEYS[name].key.parse(text)
    return own


class GroupConfig(NamedTuple):
    """The settings of the group coordinator. The field names are the keys without "group.", with underscores instead of
    dots; times are in ms."""

    initial_rebalance_delay_ms: int = 0
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 1_000
    member_metadata_max_bytes: int = 1024 * 1024
    metadata_max_bytes: int = 16 * 1024 * 1024
    coordinator_metadata_max_bytes: int = 128 * 1024 * 1024
    offset_metadata_max_bytes: int = 4096
    offsets_retention_ms: int = 7 * 24 * 60 * MINUTE_MS
    consumer_max_size: int = 10_000
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    consumer_migration_policy: str = "bidirectional"
    consumer_regex_refresh_interval_ms: int = 10 * MINUTE_MS
    consumer: ConsumerGroupSettings = ConsumerGroupSettings()
    share_max_size: int = 200
    share_initialize_retry_interval_ms: int = 30_000
    share: ShareGroupSettings = ShareGroupSettings()
    streams_max_size: int = 1_000
    streams: StreamsGroupSettings = StreamsGroupSettings()

    @property
    def may_upgrade(self) -> bool:
        """Whether members of the consumer protocol may join a classic group with members, which converts the group."""
        return self.consumer_migration_policy in ("bidirectional", "upgrade")

    @property
    def may_downgrade(self) -> bool:
        """Whether a group of the consumer protocol becomes a classic group when only classic members are left."""
        return self.consumer_migration_policy in ("bidirectional", "downgrade")

    @property
    def may_mix(self) -> bool:
        """Whether classic members may join a group of the consumer protocol."""
        return self.consumer_migration_policy != "disabled"

    @classmethod
    def of(cls, config: BrokerConfig) -> GroupConfig:
        return cls(
            initial_rebalance_delay_ms=config[keys.GROUP_INITIAL_REBALANCE_DELAY_MS],
            min_session_timeout_ms=config[keys.GROUP_MIN_SESSION_TIMEOUT_MS],
            max_session_timeout_ms=config[keys.GROUP_MAX_SESSION_TIMEOUT_MS],
            max_size=config[keys.GROUP_MAX_SIZE],
            member_metadata_max_bytes=config[keys.GROUP_MEMBER_METADATA_MAX_BYTES],
            metadata_max_bytes=config[keys.GROUP_METADATA_MAX_BYTES],
            coordinator_metadata_max_bytes=config[keys.GROUP_COORDINATOR_METADATA_MAX_BYTES],
            offset_metadata_max_bytes=config[keys.OFFSET_METADATA_MAX_BYTES],
            offsets_retention_ms=config[keys.OFFSETS_RETENTION_MINUTES] * MINUTE_MS,
            consumer_max_size=config[group_keys.CONSUMER_MAX_SIZE],
            consumer_assignors=config[group_keys.CONSUMER_ASSIGNORS] or group_keys.CONSUMER_ASSIGNORS.default,
            consumer_migration_policy=config[group_keys.CONSUMER_MIGRATION_POLICY],
            consumer_regex_refresh_interval_ms=config[group_keys.CONSUMER_REGEX_REFRESH_INTERVAL_MS],
            consumer=ConsumerGroupSettings(
                session_timeout_ms=config[group_keys.CONSUMER_SESSION_TIMEOUT_MS],
                heartbeat_interval_ms=config[group_keys.CONSUMER_HEARTBEAT_INTERVAL_MS],
                assignment_interval_ms=config[group_keys.CONSUMER_ASSIGNMENT_INTERVAL_MS],
            ),
            share_max_size=config[share_keys.SHARE_MAX_SIZE],
            share_initialize_retry_interval_ms=config[share_keys.SHARE_INITIALIZE_RETRY_INTERVAL_MS],
            share=ShareGroupSettings(
                session_timeout_ms=config[share_keys.SHARE_SESSION_TIMEOUT_MS],
                heartbeat_interval_ms=config[share_keys.SHARE_HEARTBEAT_INTERVAL_MS],
                assignment_interval_ms=config[share_keys.SHARE_ASSIGNMENT_INTERVAL_MS],
            ),
            streams_max_size=config[streams_keys.STREAMS_MAX_SIZE],
            streams=StreamsGroupSettings(
                session_timeout_ms=config[streams_keys.STREAMS_SESSION_TIMEOUT_MS],
                heartbeat_interval_ms=config[streams_keys.STREAMS_HEARTBEAT_INTERVAL_MS],
                assignment_interval_ms=config[streams_keys.STREAMS_ASSIGNMENT_INTERVAL_MS],
                num_standby_replicas=config[streams_keys.STREAMS_NUM_STANDBY_REPLICAS],
                initial_rebalance_delay_ms=config[streams_keys.STREAMS_INITIAL_REBALANCE_DELAY_MS],
            ),
        )
