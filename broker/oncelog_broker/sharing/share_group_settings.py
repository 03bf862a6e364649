"""The settings of one share group that partition leaders use: the overrides of the group, otherwise the broker's
settings. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from oncelog_broker.config import share_keys as keys
from oncelog_broker.config.bounded_keys import Bounded
from oncelog_broker.config.broker_config import BrokerConfig
from oncelog_broker.config.group_keys import GROUP_KEYS

LATEST = "latest"
EARLIEST = "earliest"


class ShareGroupSettings(NamedTuple):
    """The settings of one share group. `offset_reset` is "latest", "earliest", or the maximum age of the first record
    in ms."""

    lock_seconds: float = 30.0
    delivery_limit: int = 5
    max_locks: int = 2_000
    reads_committed: bool = False
    may_renew: bool = True
    offset_reset: str | int = LATEST

    @classmethod
    def of(cls, config: BrokerConfig, overrides: Mapping[str, str]) -> ShareGroupSettings:
        """Return the settings of a group with these overrides. The broker's limits may have changed since an override
        was set, so a value outside these limits is replaced by the nearest limit.
        """

        def bounded(name: str, of_broker: Bounded) -> int:
            value = int(overrides.get(name, config[of_broker.key]))
            return max(config[of_broker.least], min(value, config[of_broker.most])) if name in overrides else value

        def own(name: str) -> object:
            key = GROUP_KEYS[name].key
            return key.parse(overrides[name]) if name in overrides else key.default

        return cls(
            lock_seconds=bounded("share.record.lock.duration.ms", keys.RECORD_LOCK_DURATION) / 1000,
            delivery_limit=bounded("share.delivery.count.limit", keys.DELIVERY_COUNT_LIMIT),
            max_locks=bounded("share.partition.max.record.locks", keys.PARTITION_MAX_RECORD_LOCKS),
            reads_committed=own("share.isolation.level") == "read_committed",
            may_renew=own("share.renew.acknowledge.enable") is True,
            offset_reset=keys.parse_reset(str(own("share.auto.offset.reset"))),
        )
