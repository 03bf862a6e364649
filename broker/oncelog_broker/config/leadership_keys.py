"""The broker's keys about leadership: controlled shutdown, and elections of preferred leaders.

`BROKER_KEYS` in `broker_keys` includes them.
"""

from __future__ import annotations

from oncelog_broker.config.declared import ConfigKey, ConfigType, Importance, at_least

CONTROLLED_SHUTDOWN_ENABLE = ConfigKey[bool](
    "controlled.shutdown.enable",
    ConfigType.BOOLEAN,
    True,
    "Whether a broker that is told to stop first lets others lead what it leads. With ZooKeeper alone: a broker with "
    "metadata of its own has no others.",
    importance=Importance.MEDIUM,
)
CONTROLLED_SHUTDOWN_MAX_RETRIES = ConfigKey[int](
    "controlled.shutdown.max.retries",
    ConfigType.INT,
    3,
    "How often the controller is asked for that; then the broker stops all the same.",
    at_least(1),
    Importance.MEDIUM,
)
CONTROLLED_SHUTDOWN_RETRY_BACKOFF_MS = ConfigKey[int](
    "controlled.shutdown.retry.backoff.ms",
    ConfigType.LONG,
    5000,
    "How long the broker waits for what others cannot lead yet, or for another controller, before it asks again; less "
    "where it sees that they can.",
    at_least(0),
    Importance.MEDIUM,
)
AUTO_LEADER_REBALANCE_ENABLE = ConfigKey[bool](
    "auto.leader.rebalance.enable",
    ConfigType.BOOLEAN,
    True,
    "Whether the controller lets preferred replicas lead again, when they are back in sync.",
    importance=Importance.HIGH,
)
LEADER_IMBALANCE_CHECK_INTERVAL_SECONDS = ConfigKey[int](
    "leader.imbalance.check.interval.seconds",
    ConfigType.LONG,
    300,
    "How often it looks for that.",
    at_least(1),
    Importance.HIGH,
)
LEADER_IMBALANCE_PER_BROKER_PERCENTAGE = ConfigKey[int](
    "leader.imbalance.per.broker.percentage",
    ConfigType.INT,
    10,
    "It does so for brokers of whose partitions (those that prefer them) others lead more than this part.",
    at_least(0),
    Importance.HIGH,
)
