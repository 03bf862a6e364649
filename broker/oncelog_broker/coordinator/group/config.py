"""The settings of group coordination, as values that the pure parts can hold."""

from __future__ import annotations

from typing import NamedTuple

from oncelog_broker.config import broker_keys as keys
from oncelog_broker.config.broker_config import BrokerConfig

MINUTE_MS = 60_000


class GroupConfig(NamedTuple):
    """The keys with dots as underscores, without "group.", times in ms."""

    initial_rebalance_delay_ms: int = 0
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 1_000
    member_metadata_max_bytes: int = 1024 * 1024
    metadata_max_bytes: int = 16 * 1024 * 1024
    coordinator_metadata_max_bytes: int = 128 * 1024 * 1024
    offset_metadata_max_bytes: int = 4096
    offsets_retention_ms: int = 7 * 24 * 60 * MINUTE_MS

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
        )
