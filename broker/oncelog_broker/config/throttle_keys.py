"""The keys of the replication throttle (KIP-73): rates for each broker, and lists of throttled replicas for each topic.
The module also has the key for the rate at which a broker copies logs between its data directories (KIP-113).

`BROKER_KEYS` in `broker_keys` and `TOPIC_KEYS` in `topic_keys` include these keys. Names and allowed values are
Kafka's.
"""

from __future__ import annotations

import re
from typing import Any, Final, cast

from oncelog_broker.config.declared import LONG_MAX, Allowed, ConfigKey, ConfigType, Importance, UpdateMode, at_least


def _is_throttled_list(value: object) -> bool:
    items = cast(tuple[str, ...], value)
    return items == ("*",) or all(re.fullmatch(r"[0-9]+:[0-9]+", item) for item in items)


THROTTLED_REPLICAS: Final = Allowed("of partition:broker, or *", _is_throttled_list)

LEADER_REPLICATION_THROTTLED_RATE = ConfigKey[int](
    "leader.replication.throttled.rate",
    ConfigType.LONG,
    LONG_MAX,
    "The largest number of bytes per second that this broker sends to out-of-sync replicas. The limit applies "
    "to the partitions that the topic setting leader.replication.throttled.replicas lists for this broker.",
    at_least(0),
    Importance.MEDIUM,
    UpdateMode.PER_BROKER,
)
FOLLOWER_REPLICATION_THROTTLED_RATE = ConfigKey[int](
    "follower.replication.throttled.rate",
    ConfigType.LONG,
    LONG_MAX,
    "The largest number of bytes per second that this broker fetches as an out-of-sync follower. The limit "
    "applies to the partitions that the topic setting follower.replication.throttled.replicas lists for this "
    "broker.",
    at_least(0),
    Importance.MEDIUM,
    UpdateMode.PER_BROKER,
)

ALTER_LOG_DIRS_MAX_RATE = ConfigKey[int](
    "replica.alter.log.dirs.io.max.bytes.per.second",
    ConfigType.LONG,
    LONG_MAX,
    "Bytes per second that a log is copied to another data directory of this broker (AlterReplicaLogDirs).",
    at_least(1),
    Importance.MEDIUM,
    UpdateMode.PER_BROKER,
)

TOPIC_THROTTLE_KEYS: Final[tuple[ConfigKey[Any], ...]] = (
    ConfigKey[tuple[str, ...]](
        "follower.replication.throttled.replicas",
        ConfigType.LIST,
        (),
        "The replicas throttled as followers: partition:broker,partition:broker,..., or * for all.",
        THROTTLED_REPLICAS,
    ),
    ConfigKey[tuple[str, ...]](
        "leader.replication.throttled.replicas",
        ConfigType.LIST,
        (),
        "The replicas throttled as leaders: partition:broker,partition:broker,..., or * for all.",
        THROTTLED_REPLICAS,
    ),
)
"""The topic keys of the replication throttle; they have no corresponding broker keys."""
