"""The current settings of one broker: its configuration, with the dynamic settings of the cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oncelog_broker.config import broker_keys as keys
from oncelog_broker.config import throttle_keys
from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.config.effectless_warnings import EffectlessWarnings
from oncelog_broker.config.resolve import resolve_topic
from oncelog_broker.config.stored import readable_broker_overrides
from oncelog_broker.log.config import LogConfig
from oncelog_broker.metadata.model.image import ClusterImage
from oncelog_broker.replication.throttle import Throttles
from oncelog_broker.runtime.clock import Clock

KEYS_OF_LOGS: Final = (
    keys.IDEMPOTENCE_DUPLICATE_CLASSIFICATION,
    keys.IDEMPOTENCE_UNKNOWN_PRODUCER,
    keys.MESSAGE_MAX_DECOMPRESSED_BYTES,
)
"""The broker settings that each log needs, but that topics do not inherit."""


class Settings:
    """The current settings of this broker. `Settings.on_image` must be called before all other subscribers of
    images."""

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._log_configs: dict[frozenset[tuple[str, str]], LogConfig] = {}
        self._effectless_warnings = EffectlessWarnings()
        self.throttles = Throttles()
        """The limits of replication traffic (KIP-73), which change with the settings."""

    def current(self) -> BrokerConfig:
        """Return the present configuration, including dynamic settings."""
        return self._config

    @property
    def node_id(self) -> int:
        return self._config.node_id

    def of_log(self, overrides: Mapping[str, str]) -> LogConfig:
        """Return all settings of a topic with these overrides. Topics with the same overrides share one value."""
        key = frozenset(overrides.items())
        found = self._log_configs.get(key)
        if found is None:
            self._effectless_warnings.of_topic(overrides)
            of_broker = {declared.name: self._config[declared] for declared in KEYS_OF_LOGS}
            found = LogConfig.from_values(resolve_topic(overrides, self._config) | of_broker)
            self._log_configs[key] = found
        return found

    def on_image(self, old: ClusterImage, new: ClusterImage) -> None:
        """Apply the dynamic settings of this broker and of all brokers, if they have changed."""
        if new.broker_configs is not old.broker_configs:
            self.follow(new)

    def follow(self, image: ClusterImage) -> None:
        """Apply the settings in a cluster image. Settings of this broker override the defaults for all brokers."""
        self._effectless_warnings.of_broker(image.config_of_broker(self.node_id))
        self._config = self._config.with_dynamic(
            readable_broker_overrides(image.broker_configs.get(self.node_id, {})),
            readable_broker_overrides(image.broker_configs.get(None, {})),
        )
        self._log_configs.clear()
        now = self._clock.monotonic()
        self.throttles.leader.limit(self._config[throttle_keys.LEADER_REPLICATION_THROTTLED_RATE], now)
        self.throttles.follower.limit(self._config[throttle_keys.FOLLOWER_REPLICATION_THROTTLED_RATE], now)
