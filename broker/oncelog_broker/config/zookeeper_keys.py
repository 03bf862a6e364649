"""The broker's keys about ZooKeeper. `BROKER_KEYS` in `broker_keys` holds them, too."""

from __future__ import annotations

from oncelog_broker.config.declared import ConfigKey, ConfigType, Importance, at_least, not_empty, one_of

ZOOKEEPER_CONNECT = ConfigKey[str | None](
    "zookeeper.connect",
    ConfigType.STRING,
    None,
    "The ZooKeeper servers that hold the cluster's metadata: host:port,host:port/chroot. The chroot is made if it is "
    "not there. Not set: the broker is a cluster of its own, with its metadata in the first of log.dirs.",
    not_empty(),
    Importance.HIGH,
)
ZOOKEEPER_SESSION_TIMEOUT_MS = ConfigKey[int](
    "zookeeper.session.timeout.ms",
    ConfigType.INT,
    18_000,
    "After so long without a heartbeat ZooKeeper gives the broker's place away; the servers may grant another timeout. "
    "At least four of the servers' ticks (tickTime), or a broker may lead for a moment too long.",
    at_least(1),
    Importance.HIGH,
)
ZOOKEEPER_CONNECTION_TIMEOUT_MS = ConfigKey[int | None](
    "zookeeper.connection.timeout.ms",
    ConfigType.INT,
    None,
    "How long a start waits for ZooKeeper. Not set: zookeeper.session.timeout.ms.",
    at_least(1),
    Importance.HIGH,
)
BROKER_SESSION_LEASE = ConfigKey[str](
    "broker.session.lease",
    ConfigType.STRING,
    "strict",
    "When a broker that hears nothing of ZooKeeper stops leading. strict: after 0.9 of the session timeout, before "
    "anybody can have taken its place; an ensemble that is gone for longer stops the cluster. advisory: when told "
    "that its session is over, as Apache Kafka does. No key of Kafka's.",
    one_of("strict", "advisory"),
)
