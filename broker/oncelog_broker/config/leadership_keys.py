"""The broker's keys about leadership: controlled shutdown, and elections of preferred leaders.

`BROKER_KEYS` in `broker_keys` includes these keys.
"""

from __future__ import annotations

from oncelog_broker.config.declared import ConfigKey, ConfigType, Importance, at_least

CONTROLLED_SHUTDOWN_ENABLE = ConfigKey[bool](
    "controlled.shutdown.enable",
    ConfigType.BOOLEAN,
    True,
    "Whether a stopping broker first moves its leadership to other brokers (controlled shutdown). Without "
    "ZooKeeper this key has no effect, because there are no other brokers.",
    importance=Importance.MEDIUM,
)
CONTROLLED_SHUTDOWN_MAX_RETRIES = ConfigKey[int](
    "controlled.shutdown.max.retries",
    ConfigType.INT,
    3,
    "The number of attempts at a controlled shutdown. After the last attempt the broker stops, even if it "
    "still leads partitions.",
    at_least(1),
    Importance.MEDIUM,
)
CONTROLLED_SHUTDOWN_RETRY_BACKOFF_MS = ConfigKey[int](
    "controlled.shutdown.retry.backoff.ms",
    ConfigType.LONG,
    5000,
    "How long the broker waits for another in-sync replica or for another controller before it repeats a "
    "controlled shutdown. The wait ends early if the metadata shows one.",
    at_least(0),
    Importance.MEDIUM,
)
AUTO_LEADER_REBALANCE_ENABLE = ConfigKey[bool](
    "auto.leader.rebalance.enable",
    ConfigType.BOOLEAN,
    True,
    "Whether the controller elects preferred leaders when they are back in sync.",
    importance=Importance.HIGH,
)
LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS = ConfigKey[int](
    "leader.imbalance.check.interval.seconds",
    ConfigType.LONG,
    300,
    "How often the controller checks whether to elect preferred leaders.",
    at_least(1),
    Importance.HIGH,
)
LEADER_IMBALANCE_PER_BROKER_PERCENTAGE = ConfigKey[int](
    "leader.imbalance.per.broker.percentage",
    ConfigType.INT,
    10,
    "The controller elects a broker as leader of the partitions that prefer it when other brokers lead more "
    "than this percentage of these partitions.",
    at_least(0),
    Importance.HIGH,
)
